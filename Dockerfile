# docker build -t doom_a3c . && docker run --rm -it --shm-size=1g -v "$PWD/out:/home/agent/out" doom_a3c \
#     doom-a3c-train --scenario basic.wad --models-dir out/models --frames-dir out/frames --logs-dir out/logs
# --shm-size: games talk to the trainer through /dev/shm, of which Docker gives 64 MB unless it is told otherwise.
FROM python:3.11-slim

RUN apt-get update && apt-get install -y --no-install-recommends tini && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home agent
COPY requirements.txt constraints.txt /src/
RUN pip install --no-cache-dir -r /src/requirements.txt -c /src/constraints.txt
COPY . /src
RUN pip install --no-cache-dir --no-deps /src && rm -rf /src

USER agent
WORKDIR /home/agent
# tini ends what a killed trainer leaves, and hands signals on: docker stop saves.
ENTRYPOINT ["tini", "-g", "--"]
CMD ["doom-a3c-train", "--help"]
