# What the nodes of a cluster run: Ray, torch and elsa-tune, at the versions that are tested.
#
#   docker build -f deploy/images/search.Dockerfile -t REGISTRY/elsa-tune:0.1.0 .
#
# The base has Python 3.11, Ray and what KubeRay and `ray up` ask of a container; torch brings CUDA.
FROM rayproject/ray:2.60.0-py311

COPY --chown=ray:users . /home/ray/elsa-tune
# Of the checkout it needs the package alone.
RUN pip install --no-cache-dir -c /home/ray/elsa-tune/constraints.txt \
        "/home/ray/elsa-tune[artifacts,cluster,lora]" \
    && rm -rf /home/ray/elsa-tune
