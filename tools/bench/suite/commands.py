"""Starts programs and remembers each kind of command line once, for the report."""
import subprocess


class CommandFailed(Exception):
    """A program of the suite failed; the text is what it said."""


class Commands:
    def __init__(self):
        self.seen = []

    def note(self, words):
        """Remembers a command line."""
        line = " ".join(str(word) for word in words)
        if line not in self.seen:
            self.seen.append(line)

    def take_seen(self):
        seen, self.seen = self.seen, []
        return seen

    def run(self, *words, note=False, check=True, timeout=600):
        """Its output. A failure is CommandFailed."""
        if note:
            self.note(words)
        result = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=timeout)
        if check and result.returncode != 0:
            raise CommandFailed(f"{' '.join(str(word) for word in words)}: exit {result.returncode}: "
                                f"{(result.stderr or result.stdout).strip()}")
        return result.stdout
