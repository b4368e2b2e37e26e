"""tests/lab/machine_setting.py: tests run side by side on one machine, and each has the setting that it made."""
import threading

from lab.machine_setting import changed


def test_who_comes_second_waits(tmp_path):
    setting = tmp_path / "setting"
    setting.write_text("N")
    seen = []
    is_made = threading.Event()

    def second():
        with changed(setting, "2"):
            seen.append(setting.read_text())
            is_made.set()

    with changed(setting, "Y"):
        other = threading.Thread(target=second)
        other.start()
        assert not is_made.wait(0.3)
        assert setting.read_text() == "Y"
    other.join()
    assert seen == ["2"] and setting.read_text() == "N"


def test_what_was_there_is_back_after_a_failure(tmp_path):
    setting = tmp_path / "setting"
    setting.write_text("N")
    try:
        with changed(setting, "Y"):
            raise OSError
    except OSError:
        pass
    with changed(setting, "2"):  # nobody has it
        assert setting.read_text() == "2"
    assert setting.read_text() == "N"
