# docker build -t odradek .
# docker run -p 9092:9092 -v odradek:/var/lib/odradek odradek serve --advertise localhost:9092
#
# Settings are environment variables as in Kafka's image (KAFKA_NUM_PARTITIONS=3). A port mapping hides the address
# that a client dialled: --advertise (or KAFKA_ADVERTISED_LISTENERS) says it. Containers of one network need neither.
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --wheel-dir /wheels .

FROM python:3.12-slim
LABEL org.opencontainers.image.title="odradek" org.opencontainers.image.licenses="Apache-2.0"
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels odradek \
 && useradd --system --uid 10001 --home-dir /var/lib/odradek --no-create-home odradek \
 && install --directory --owner odradek /var/lib/odradek
USER odradek
WORKDIR /var/lib/odradek
VOLUME /var/lib/odradek
EXPOSE 9092
# Where neither a file, a KAFKA_ variable nor the command line says otherwise. The health check asks at the address
# that the broker writes down.
ENV ODRADEK_DEFAULT_LISTENERS=PLAINTEXT://0.0.0.0:9092 \
    ODRADEK_DEFAULT_LOG_DIR=/var/lib/odradek \
    ODRADEK_ADDRESS_FILE=/tmp/odradek-address \
    PYTHONUNBUFFERED=1
HEALTHCHECK --interval=5s --timeout=4s --start-period=5s --retries=3 CMD ["python", "-m", "odradek.server.process.health"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["odradek"]
CMD ["serve"]
