FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY exporter exporter
RUN pip wheel --no-cache-dir --no-deps --wheel-dir=/wheels . \
    && python -m venv --without-pip /opt/venv \
    && pip --python=/opt/venv/bin/python install --no-cache-dir /wheels/*.whl

FROM python:3.13-slim
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="baseten-exporter" \
      org.opencontainers.image.description="Prometheus exporter for model deployments and Loops trainers on Baseten" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/venv /opt/venv
# With an arena for each thread, glibc keeps what a large answer needed as often as there are threads, and what is
# large but not mapped by itself leaves holes.
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin \
    MALLOC_ARENA_MAX=2 \
    MALLOC_MMAP_THRESHOLD_=131072 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /etc/baseten-exporter
EXPOSE 10310
# By another port than the image's, give the container a health check of its own.
HEALTHCHECK --interval=15s --timeout=5s --start-period=10s CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 10310), 3).close()"]
ENTRYPOINT ["baseten-exporter"]
CMD ["run", "--config.file=/etc/baseten-exporter/config.yaml"]
