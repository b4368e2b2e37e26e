"""What .mkdocs.yml cannot say.

README.md is the home page. Links to files outside docs/ work where the repository is looked at; the site does not have
those files, so there such a link is plain text, when the file exists. One that does not exist is left, and with
--strict it ends the build, as a broken link between pages does.
"""
import pathlib
import posixpath
import re

from mkdocs.structure.files import File
from pymdownx.slugs import slugify
from pymdownx.superfences import fence_code_format

ROOT = pathlib.Path(__file__).resolve().parent
# Code, which is left alone, or a link: its text, where it leads to, the anchor there.
LINK = re.compile(r"```.*?^```|`[^`\n]+`|\[([^]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)", re.DOTALL | re.MULTILINE)


def on_config(config):
    # Functions, which plain YAML cannot name.
    mermaid = {"name": "mermaid", "class": "mermaid", "format": fence_code_format}
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = [mermaid]
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")  # as code hosts do
    return config


def on_files(files, config):
    files.append(File.generated(config, "index.md", content=(ROOT / "README.md").read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links as the site has them."""
    home = page.file.src_uri == "index.md"
    folder = posixpath.dirname("README.md" if home else f"docs/{page.file.src_uri}")

    def rewritten(match):
        text, target, anchor = match.group(1), match.group(2), match.group(3) or ""
        if target is None or re.match(r"[a-z]+:", target):
            return match.group()
        path = posixpath.normpath(posixpath.join(folder, target))
        if path.startswith("docs/"):
            return f"[{text}]({path.removeprefix('docs/')}{anchor})" if home else match.group()
        if path == "README.md":
            return f"[{text}]({posixpath.relpath('docs/index.md', folder)}{anchor})"
        return text if (ROOT / path).exists() else match.group()

    return LINK.sub(rewritten, markdown)
