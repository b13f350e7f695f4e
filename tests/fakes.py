"""Stand-ins that several tests build on."""

from doom_a3c.settings import plain, validated


def changed(config, **flat):
    """Returns a config with other values of those settings, by their flat names."""
    return validated(type(config), {**plain(config), **flat}, "test")
