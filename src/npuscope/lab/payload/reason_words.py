"""Why a lane was idle, in plain words, for the timeline and its legend."""

from __future__ import annotations

from npuscope.analysis.waits import REASONS

# what people read: a short title, and a sentence in which {next} is what ran next and {for} what it waited for
ON_CORES = {
    "dependency": ("waiting for data", "{next} could not start: {for} was still running."),
    "FIN": ("end not yet seen", "{for} had ended, but the scheduler had not seen it, so {next} had to wait."),
    "dispatch": ("not handed out", "Work was ready, but the scheduler had not handed it out. {next} came next."),
    "pickup": ("not started", "The scheduler had handed {next} out, and the core had not started it."),
    "starved": ("nothing to do", "Nothing was ready for this core. {next} came next."),
    "edge": ("before or after the work", "Before this lane's first slice, or after its last."),
}
ON_STREAMS = {
    **ON_CORES,
    "dispatch": ("not launched", "The host had not launched {next} yet."),
    "pickup": ("not started", "{next} was launched and had not started."),
}


def reason_words(on_cores: bool) -> list[dict[str, str]]:
    """Per reason, in the order of REASONS: its id, title and sentence."""
    words = ON_CORES if on_cores else ON_STREAMS
    found = []
    for reason in REASONS:
        if reason in words:
            title, sentence = words[reason]
        else:
            titles = [words[part][0] for part in reason.split("+")]
            title = " or ".join(titles)
            sentence = f"The capture cannot tell which: {', '.join(titles[:-1])} or {titles[-1]}. {{next}} came next."
        found.append({"id": reason, "title": title, "sentence": sentence})
    return found
