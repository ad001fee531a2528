"""Why a lane was idle, as sentences for the timeline; the short words are those of analysis/waits.py."""

from __future__ import annotations

from npuscope.explain.waits import IN_WORDS, REASONS

# {next} is what ran next on the lane, {for} what it waited for
ON_CORES = {
    "dependency": "{next} could not start: {for} was still running.",
    "FIN": "{for} had ended, but the scheduler had not noticed it, so {next} had to wait.",
    "dispatch": "Work was ready, but the scheduler had not handed it out. {next} came next.",
    "pickup": "The scheduler had handed {next} out, and the core had not started it.",
    "starved": "Nothing was ready for this core. {next} came next.",
    "edge": "This lane's first slice had not begun, or its last had ended.",
    "FIN+dispatch+pickup": "What {next} needs had ended; the scheduler had not started it.",
}
ON_STREAMS = {
    "dispatch": "The host had not launched {next} yet.",
    "pickup": "{next} was launched and had not started.",
    "dependency+pickup": "{next} was launched and had not started; for what it waited is not recorded.",
}
ON_STREAMS_SHORT = {"dispatch": "not launched yet", "pickup": "launched, not started yet"}
UNTOLD = "{next} came next; the capture does not tell what it waited for."


def reason_words(on_cores: bool) -> list[dict[str, str]]:
    """Per reason, in the order of REASONS: its id, its words and a sentence."""
    sentences = ON_CORES if on_cores else {**ON_CORES, **ON_STREAMS}
    titles = IN_WORDS if on_cores else {**IN_WORDS, **ON_STREAMS_SHORT}
    return [{"id": reason, "title": titles[reason], "sentence": sentences.get(reason, UNTOLD)} for reason in REASONS]
