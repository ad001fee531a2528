"""The captures that npuscope reads and the formats it writes."""

from __future__ import annotations

from npuscope.trace.formats import Format, plugin_readers, readers, writers


def command() -> None:
    package = {plugin.value.name: plugin.package for plugin in plugin_readers()}
    print("Reads, whatever the file is called; also packed with gzip or zstd:")
    for reader in sorted(readers(Format), key=lambda reader: reader.fallback):
        files = f": {', '.join(reader.files)}" if reader.files else ""
        source = f" (from {package[reader.name]})" if reader.name in package else ""
        print(f"  {reader.name:<16} {reader.what}{files}{source}")
    print("Writes:")
    for writer in writers().values():
        print(f"  {writer.name:<16} {writer.what}")
