# syntax=docker/dockerfile:1
# The engine as a base image. Your workflows go on top of it: docs/operations.md shows the six lines.

FROM python:3.13-slim AS wheel
WORKDIR /src
RUN --mount=type=bind,source=requirements/build.lock,target=/build.lock \
    pip install --no-cache-dir --require-hashes --requirement /build.lock
COPY pyproject.toml README.md LICENSE ./
COPY worker worker
COPY world_redis world_redis
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheel .


FROM python:3.13-slim

# No version of tini is pinned: it is the base image's, and that is what to pin.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/*

RUN --mount=type=bind,source=requirements/runtime.lock,target=/runtime.lock \
    pip install --no-cache-dir --require-hashes --only-binary :all: --requirement /runtime.lock
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    pip install --no-cache-dir --no-index --no-deps /wheel/*.whl

# Iteration over a set of strings must be the same in every worker, and nothing is written at run time: the
# root file system may be read-only, with a tmpfs at /tmp.
ENV PYTHONHASHSEED=0 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

WORKDIR /app
# A number, so that Kubernetes can see that it is not root.
USER 10001:10001

EXPOSE 9464
# tini hands signals on and buries orphans of process steps.
ENTRYPOINT ["tini", "--", "worker"]
CMD ["--help"]
HEALTHCHECK --interval=15s --timeout=10s --start-period=30s --retries=3 CMD ["worker", "health"]
