# The command line and the review, on the CPU. Tables and results are in /data.
#
#   docker build --tag recoslip .
#   docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/data" recoslip \
#     detect nodes.csv edges.csv --out out
#
# The review, for a browser on this machine. It prints its address with the container's name: replace that name by
# localhost and keep the rest. Anybody who has the token in the address can decide (SECURITY.md).
#
#   docker run --rm --interactive --tty --user "$(id -u):$(id -g)" --volume "$PWD:/data" \
#     --publish 127.0.0.1:8000:8000 recoslip review out --host 0.0.0.0 --port 8000 --no-browser
#
# For a team, put a proxy with TLS in front and name it with --allow-host; without one, the token is not encrypted.
FROM python:3.12-slim AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
COPY constraints.txt /tmp/constraints.txt
COPY --from=wheel /wheels /tmp/wheels
# The CPU build of PyTorch is on PyTorch's own index; that of PyPI brings CUDA, which takes some gigabytes.
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu \
        --constraint /tmp/constraints.txt "recoslip[excel,networks,review] @ file://$(echo /tmp/wheels/*.whl)" \
    && rm -r /tmp/constraints.txt /tmp/wheels \
    && useradd --uid 1000 recoslip \
    && install --directory --owner 1000 --group 1000 /data
# The user that `--user` names has no home folder in the image.
ENV HOME=/tmp \
    PYTHONUNBUFFERED=1
USER 1000
WORKDIR /data
VOLUME /data
EXPOSE 8000
ENTRYPOINT ["recoslip"]
CMD ["--help"]
