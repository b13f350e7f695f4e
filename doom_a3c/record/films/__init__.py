"""Films of episodes: recordings, gifs, videos and the overlay."""
