"""What a model's configuration tells of one that cannot be used, in a sentence that names it."""

import json
from pathlib import Path

import transformers
from transformers import PretrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES,
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    MODEL_FOR_IMAGE_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES,
)

from elsa_tune.errors import ModelError
from elsa_tune.training.model.model_files import CONFIG
from elsa_tune.training.model.parts import ENCODERS

# What an architecture without a text classifier is for, by transformers' lists.
_KINDS = (
    (MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES, "a model of images and texts"),
    (MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES, "a model of images"),
    (MODEL_FOR_IMAGE_MAPPING_NAMES, "a model of images"),
    (MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES, "a model of sound"),
    (MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, "an encoder-decoder"),
    (MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, "a decoder"),
)


def check_fields(folder: Path, name: str) -> None:
    """Raise ModelError for a config.json that is damaged, or names an architecture that nobody has.

    One that brings code of its own is left to transformers, which says so.
    """
    file = folder / CONFIG
    try:
        fields = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"the configuration {file} of model '{name}' is not readable JSON ({error}); fetch or "
            "save the model again"
        ) from error
    model_type = fields.get("model_type") if isinstance(fields, dict) else None
    is_known = isinstance(model_type, str) and model_type in CONFIG_MAPPING
    if isinstance(fields, dict) and (is_known or "auto_map" in fields):
        return
    what = f"model_type is '{model_type}'" if model_type else "it has no field model_type"
    raise ModelError(
        f"the configuration {file} of model '{name}' names no architecture that transformers "
        f"{transformers.__version__} knows: {what}; give an encoder such as {ENCODERS}"
    )


def check_classifies_texts(config: PretrainedConfig, name: str) -> None:
    """Raise ModelError for an architecture that transformers has no text classifier of."""
    model_type = config.model_type
    if model_type in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES:
        return
    kind = "an encoder-decoder" if config.is_encoder_decoder else "no text classifier"
    for names, described_as in _KINDS:
        if model_type in names:
            kind = described_as
            break
    raise ModelError(
        f"model '{name}' is {kind} (architecture '{model_type}'); give an encoder of texts such as "
        f"{ENCODERS}"
    )
