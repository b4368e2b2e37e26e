"""What every program's command line promises."""


def assert_one_line_error(result, exit_code, *words):
    """Failed with this exit code, nothing on stdout, and one line on stderr that holds these words."""
    assert result.returncode == exit_code, f"exit {result.returncode}: {result.stdout}{result.stderr}"
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, f"not one line: {result.stderr}"
    for word in words:
        assert str(word) in lines[0], lines[0]
