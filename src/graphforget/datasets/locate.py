"""The raw files of the public datasets: where they are looked for, and their download."""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from graphforget.errors import InputError
from graphforget.files import error_reason, open_regular

VARIABLE = "GRAPHFORGET_DATA"
LARGEST = 2**28  # bytes of a raw file whose content is checked


@dataclass(frozen=True)
class RawFiles:
    """The published files of one dataset: PyG's name of the folder, and the SHA-256 of each file."""

    folder: str
    checksums: Mapping[str, str]
    # The class of PyG that knows the address; None: it cannot be downloaded file by file.
    publisher: Literal["Planetoid", "Coauthor", "HeterophilousGraphDataset"] | None = "Planetoid"
    address: str | None = None  # of files that no class of PyG knows


RAW_FILES: Mapping[str, RawFiles] = {
    "cora": RawFiles(
        "Cora",
        {
            "ind.cora.x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
            "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
            "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
            "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
            "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
            "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
            "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
            "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
        },
    ),
    "citeseer": RawFiles(
        "CiteSeer",
        {
            "ind.citeseer.x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
            "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
            "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
            "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
            "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
            "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
            "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
            "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
        },
    ),
    "pubmed": RawFiles(
        "PubMed",
        {
            "ind.pubmed.x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
            "ind.pubmed.tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
            "ind.pubmed.allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
            "ind.pubmed.y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
            "ind.pubmed.ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
            "ind.pubmed.ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
            "ind.pubmed.graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
            "ind.pubmed.test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
        },
    ),
    "cs": RawFiles(
        "CS",
        {
            "ms_academic_cs.npz": "933c745734e78908c7eb77172a673fee0503f30e26e5a99b36814d88534c42e3",
        },
        publisher="Coauthor",
    ),
    "physics": RawFiles(
        "Physics",
        {
            "ms_academic_phy.npz": "e4d68468eba5fb8f6b280ffd406bd53e6e4295ba1dd2967d6fe99b978e4b3375",
        },
        publisher="Coauthor",
    ),
    "tolokers": RawFiles(
        "tolokers",
        {
            "tolokers.npz": "dacf3ac94cec53d03cd2adb5255c08b33dee1656c33ca8164a464bd9450a1667",
        },
        publisher="HeterophilousGraphDataset",
    ),
    "minesweeper": RawFiles(
        "minesweeper",
        {
            "minesweeper.npz": "e664c8dacf1e8ac466c2c09ed4b237bd2c5541f47a6eae9c6092cb87f16412b3",
        },
        publisher="HeterophilousGraphDataset",
    ),
    "facebook-large": RawFiles(
        "facebook_large",
        {
            "facebook_edges.csv": "7c50d8f02a75cc0829577814a1fc14535164daa38d79c3612340c9e9cdbd4022",
            "facebook_features.json": "ea870537646a93642a0008d38aa9bfeff02018070ba97b1f3f469d9622626436",
            "facebook_target.csv": "7bd96eafea3c2ca40f44bfa9e73642194696c21e38c7b29ed409c32ad14075cd",
        },
        address="https://raw.githubusercontent.com/benedekrozemberczki/datasets/master/facebook_large",
    ),
    "mutag": RawFiles(
        "MUTAG",
        {
            "MUTAG_A.txt": "d9656ca7493f3445d737c711710bb36fd432dddd1c0ea32e1d4713c86ebd28e2",
            "MUTAG_graph_indicator.txt": "7d520a4d6c7961c0cdeabe076d8fe27e795b6d373485c9a2b744987e560a2056",
            "MUTAG_graph_labels.txt": "a1518ea39ba3426bd42f57396b9c4baffe68e9adc718caeeab0119c6591a5f2c",
            "MUTAG_node_labels.txt": "678f429965490e84dd27713017538c995fc05d1621beac910848b600015ee863",
        },
        publisher=None,
    ),
    "nci1": RawFiles(
        "NCI1",
        {
            "NCI1_A.txt": "2c028eda59a5fe96e2265a63d9ac236901bd9a7dc658498be13cd704a703076d",
            "NCI1_graph_indicator.txt": "ffe5acfa754b057d5ce0dc725c5aadb631628161886cc040d38c719635257dc5",
            "NCI1_graph_labels.txt": "fae44681e70113f496256ae87eaac33b7836e3a97fe8e023933b84fde6a5c8a2",
            "NCI1_node_labels.txt": "dc0a22b6cbff0c939de00373e823977ba32b358f560e4288d7602f7b51407ee2",
        },
        publisher=None,
    ),
    "proteins": RawFiles(
        "PROTEINS",
        {
            "PROTEINS_A.txt": "4c4b33e272fc95cac6d27ed6d5d12b9a852c8610e91fff59f8f0dbdd5a20df67",
            "PROTEINS_graph_indicator.txt": "8d4ff1e852a5c28561e9bffb44cf9490bc552b13a3b6156dd12dc7f44e9afc4a",
            "PROTEINS_graph_labels.txt": "c0ef9810c440775252872318d0c8adc385588e14bc4c47a2c34aa96ee3c7cdcd",
            "PROTEINS_node_attributes.txt": "54eef829abb37e458a5fbf3a3c581e48e5810e220463c2cd951856b9ceb08f07",
            "PROTEINS_node_labels.txt": "f758e8ad3d6e3c026b50833d75f6f90735b94eb3345e4243707f495ca8afea8d",
        },
        publisher=None,
    ),
    "enzymes": RawFiles(
        "ENZYMES",
        {
            "ENZYMES_A.txt": "5553c84f8f562f3e199dfd27192174f485e85c44c1357661098668937a739cbf",
            "ENZYMES_graph_indicator.txt": "95ba0fa47eba6f02e6b754a215dc66d5b49de3f45f57a128514301a8d7ed5f46",
            "ENZYMES_graph_labels.txt": "04743e08967e61e65cdacbb90f8df6ee53742b3d2e7b84675b85ebac70506856",
            "ENZYMES_node_attributes.txt": "305a8fc3b12f79fb844ef3374d6a3c8ceeb4887dd4f86bbfe37932c4c5434e7b",
            "ENZYMES_node_labels.txt": "8263eb9b64efa231a5886343483ccfc0342f2407014763a8f738fd51c32ce770",
        },
        publisher=None,
    ),
    "imdb-binary": RawFiles(
        "IMDB-BINARY",
        {
            "IMDB-BINARY_A.txt": "23c8964bab82f81469271186d721131714a265d0ca8c44ae048118da1d0c4092",
            "IMDB-BINARY_graph_indicator.txt": "415cc3ba25b8c647dcf34d3de034f675ee070616f3b803be939cb26773489f26",
            "IMDB-BINARY_graph_labels.txt": "63a44411fd6342b9c4429828c16e144a2a11ef5244e25bb60f0ffa8b3ee2ffce",
        },
        publisher=None,
    ),
    "deezer-egos": RawFiles(
        "deezer_egos",
        {
            "deezer_egos.zip": "79ea3c91bcd635a523d402623a4a671493a8dbed6d7a9c68a49995ab3cdaafcc",
        },
        publisher=None,
    ),
}


def raw_folder(name: str, *, root: str | Path | None = None) -> Path:
    """The folder with all raw files of dataset `name`, `<root>/<Name>/raw` in the layout of PyG.

    Looks in $GRAPHFORGET_DATA, then in ~/.cache/graphforget, then downloads into the latter. A given `root`
    replaces both. Raises `InputError` if the files cannot be found or downloaded; no partial file is left.
    """
    if root is not None:
        roots = [Path(root)]
    else:
        variable = os.environ.get(VARIABLE)
        roots = ([Path(variable)] if variable else []) + [Path.home() / ".cache" / "graphforget"]
    raw = RAW_FILES[name]
    for candidate in roots:
        folder = candidate / raw.folder / "raw"
        if all((folder / file).is_file() for file in raw.checksums):
            return folder
    try:
        return _download(name, roots[-1])
    except (OSError, http.client.HTTPException, ValueError) as error:
        folders = " or ".join(str(candidate / raw.folder / "raw") for candidate in roots)
        raise InputError(
            f"the raw files of {name} are not in {folders} and cannot be downloaded ({error}), "
            f"put them into <folder>/{raw.folder}/raw and set {VARIABLE} to <folder>"
        ) from error


def published_file(name: str, *, root: str | Path | None = None) -> Path:
    """The one raw file of dataset `name`, with the content that was published, else `InputError`."""
    ((file, checksum),) = RAW_FILES[name].checksums.items()
    path = raw_folder(name, root=root) / file
    try:
        with open_regular(path, largest=LARGEST, links=True) as content:
            found = hashlib.sha256(content.read()).hexdigest()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error_reason(error)}") from error
    if found != checksum:
        raise InputError(f"{path} is not the file that was published: its SHA-256 is {found}")
    return path


def _download(name: str, root: Path) -> Path:
    """Downloads into a temporary folder first, so that an interruption leaves no file that looks complete."""
    from torch_geometric.data import download_url

    raw = RAW_FILES[name]
    if raw.publisher is None:
        raise ValueError("they are published as an archive alone")
    url = raw.address or _base_url(raw.publisher)
    folder = root / raw.folder / "raw"
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as temporary:
        for file, checksum in raw.checksums.items():
            downloaded = Path(download_url(f"{url}/{file}", temporary))
            # download_url checks neither the server's certificate nor that the file is complete.
            if hashlib.sha256(downloaded.read_bytes()).hexdigest() != checksum:
                raise ValueError(f"{file} has other content than the published file")
        folder.mkdir(parents=True, exist_ok=True)
        for file in raw.checksums:
            (Path(temporary) / file).replace(folder / file)
    return folder


def _base_url(publisher: str) -> str:
    from torch_geometric import datasets

    address: str = getattr(datasets, publisher).url
    return address.rstrip("/")
