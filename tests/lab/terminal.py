"""Programs at a terminal: what they write to it, and what of that is left on the screen."""
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading


class Terminal:
    """A window of so many columns and rows, for the stderr (and the stdout, if wanted) of one program."""

    def __init__(self, *command, columns=80, rows=24, stdout_too=False):
        outside, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        attributes = termios.tcgetattr(inside)
        attributes[1] &= ~termios.OPOST  # a newline stays one
        termios.tcsetattr(inside, termios.TCSANOW, attributes)
        try:
            self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stderr=inside,
                                            stdout=inside if stdout_too else subprocess.PIPE)
        finally:
            os.close(inside)
        self.text = ""
        self._reader = threading.Thread(target=self._read, args=(outside,))
        self._reader.start()

    def _read(self, outside):
        seen = b""
        try:
            while piece := os.read(outside, 65536):
                seen += piece
                self.text = seen.decode(errors="replace")
        except OSError:  # EIO: the program has ended, and all was read
            pass
        os.close(outside)

    def wait(self, timeout=60):
        """The exit status, when it has ended. Then `stdout` is what went elsewhere."""
        try:
            self.stdout = (self.process.communicate(timeout=timeout)[0] or b"").decode()
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self._reader.join()
        return self.process.returncode

    def drawn(self):
        """Every line that was written over another one."""
        return [line for line in re.findall(r"\r\033\[K([^\r\n]*)(?=\r|\Z)", self.text) if line]


def screen(text):
    """The lines that are left of it."""
    lines, column = [""], 0
    for piece in re.findall(r"\033\[[0-9;]*[A-Za-z]|[\s\S]", text):
        if piece == "\033[2J":
            lines, column = [""], 0
        elif piece == "\033[K":
            lines[-1] = lines[-1][:column]
        elif piece == "\n":
            lines.append("")
            column = 0
        elif piece == "\r":
            column = 0
        elif not piece.startswith("\033"):
            lines[-1] = lines[-1][:column] + piece + lines[-1][column + 1:]
            column += 1
    return lines
