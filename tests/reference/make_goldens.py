#!/usr/bin/env python3
"""Writes the golden files that tests/engine/golden_test.cc compares Kvist's engine with.

    python3 -m venv venv && venv/bin/pip install -r tests/reference/requirements.txt
    venv/bin/python tests/reference/make_goldens.py --model models/SmolLM2-135M-Instruct.Q4_1.gguf

Token ids come from llama.cpp's tokenizer on the file as it is, checked against Hugging Face `tokenizers` built from the
file's vocabulary. Logits and greedy continuations come from llama.cpp on a copy of the file whose tensors are
dequantised to F32, with an F32 KV cache: on the quantised file llama.cpp rounds activations to 8 bits, which moves
logits by far more than any difference between two correct engines. For information the script also records how
often llama.cpp on the quantised file agrees, and how far an F16 KV cache (Kvist's) moves the logits.
"""

import argparse
import ctypes
import hashlib
import importlib.metadata
import json
import os
import platform
import sys
import tempfile

import gguf
import jinja2
import llama_cpp
import numpy as np
import tokenizers

from prompts import CHATS, PROMPTS

MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODEL_BYTES = 98362432
CONTINUATION = 64
TOP_LOGITS = 8
# Prompts whose top logits at the last prompt position are recorded.
LOGIT_PROMPTS = ["english_alice", "code_python", "scripts_asian", "emoji", "long_inventory", "chat_several_turns",
                 "whitespace_runs", "numbers"]
CONTEXT = 4096  # KV cells, shared by the sequences that run side by side
MAX_SEQUENCES = 40
F32, F16 = 0, 1  # ggml types


def check_model(path: str) -> None:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    if os.path.getsize(path) != MODEL_BYTES or digest.hexdigest() != MODEL_SHA256:
        sys.exit(f"{path} is not the model the golden files are for (SHA-256 {MODEL_SHA256}, {MODEL_BYTES} bytes)")


def write_f32_copy(source: str, target: str) -> None:
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(name, field.contents())
        else:
            writer.add_key_value(name, field.contents(), field.types[0])
    writer.add_file_type(0)
    for tensor in reader.tensors:
        weights = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, np.ascontiguousarray(weights))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def hf_tokenizer(path: str) -> tokenizers.Tokenizer:
    """SmolLM2's tokenizer as its authors define it, with the file's vocabulary and merges."""
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])
    tokenizer.add_special_tokens([t for t, kind in zip(tokens, types) if kind == 3])
    return tokenizer


class Engine:
    """A llama.cpp context that runs several sequences side by side, so that weights are read once for all."""

    BATCH = 512  # tokens

    def __init__(self, path: str, kv_type: int, threads: int):
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = CONTEXT, self.BATCH, self.BATCH
        params.n_seq_max, params.kv_unified = MAX_SEQUENCES, True
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = kv_type
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(self.BATCH, 0, 1)

    def close(self) -> None:
        llama_cpp.llama_batch_free(self.batch)
        llama_cpp.llama_free(self.context)
        llama_cpp.llama_model_free(self.model)

    def decode(self, tokens: list[tuple[int, int, int, bool]]) -> list[np.ndarray]:
        """Runs (token, position, sequence, wants logits); the logits asked for, in order."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, (token, position, sequence, wants) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, wants
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
        if llama_cpp.llama_decode(self.context, batch) != 0:
            sys.exit("llama_decode failed")
        return [self.logits_at(i) for i, token in enumerate(tokens) if token[3]]

    def logits_at(self, index: int) -> np.ndarray:
        address = llama_cpp.llama_get_logits_ith(self.context, index)
        pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(pointer, shape=(self.vocabulary,)).copy()

    def steps(self, prompts: list[list[int]], forced: list[list[int]] | None):
        """Yields the logits of every sequence at each of CONTINUATION steps; goes on with `forced`, else the best."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        rows = []
        for sequence, prompt in enumerate(prompts):
            for start in range(0, len(prompt), self.BATCH):
                part = [(token, start + i, sequence, start + i + 1 == len(prompt))
                        for i, token in enumerate(prompt[start:start + self.BATCH])]
                rows += self.decode(part)
        for step in range(CONTINUATION):
            yield rows
            if step + 1 == CONTINUATION:
                return
            chosen = [f[step] for f in forced] if forced else [int(np.argmax(row)) for row in rows]
            rows = self.decode([(token, len(prompt) + step, sequence, True)
                                for sequence, (token, prompt) in enumerate(zip(chosen, prompts))])


def groups(ids: dict[str, list[int]]) -> list[list[str]]:
    """Names of prompts that fit into one context together."""
    out, room = [], 0
    for name, tokens in ids.items():
        need = len(tokens) + CONTINUATION
        if not out or need > room or len(out[-1]) == MAX_SEQUENCES:
            out.append([])
            room = CONTEXT
        out[-1].append(name)
        room -= need
    return out


def greedy(engine: Engine, prompts: list[list[int]]) -> tuple[list[dict], list[np.ndarray]]:
    """Per prompt: best and second-best token and their logits at each step, taking the best; and the first logits."""
    out = [{"tokens": [], "seconds": [], "best_logits": [], "second_logits": []} for _ in prompts]
    first = []
    for step, rows in enumerate(engine.steps(prompts, None)):
        first = first or rows
        for entry, logits in zip(out, rows):
            best = int(np.argmax(logits))
            rest = logits.copy()
            rest[best] = -np.inf
            second = int(np.argmax(rest))
            entry["tokens"].append(best)
            entry["seconds"].append(second)
            entry["best_logits"].append(round(float(logits[best]), 4))
            entry["second_logits"].append(round(float(logits[second]), 4))
        print(f"\r  step {step + 1}/{CONTINUATION}", end="", file=sys.stderr, flush=True)
    print("\r", end="", file=sys.stderr)
    return out, first


def forced_errors(engine: Engine, prompts: list[list[int]], references: list[dict]) -> list[float]:
    """Largest difference of the two candidates' logits when `engine` is fed the references' tokens."""
    worst = [0.0] * len(prompts)
    for step, rows in enumerate(engine.steps(prompts, [r["tokens"] for r in references])):
        for i, (logits, reference) in enumerate(zip(rows, references)):
            worst[i] = max(worst[i], abs(float(logits[reference["tokens"][step]]) - reference["best_logits"][step]),
                           abs(float(logits[reference["seconds"][step]]) - reference["second_logits"][step]))
    return worst


def render(path: str, messages: list[dict]) -> str:
    template = gguf.GGUFReader(path).fields["tokenizer.chat_template"].contents()
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)  # as transformers sets it
    return environment.from_string(template).render(messages=messages, add_generation_prompt=True)


def write_lines(path: str, head: dict, entries: list[dict]) -> None:
    """JSON, one entry a line, so that a diff shows which prompt changed."""
    with open(path, "w", encoding="utf-8") as file:
        head_text = json.dumps(head, indent=1, ensure_ascii=True)
        file.write(head_text[:-2] + ',\n "prompts": [\n')
        file.write(",\n".join(json.dumps(e, ensure_ascii=True, separators=(",", ":")) for e in entries))
        file.write("\n ]\n}\n")


def provenance() -> dict:
    versions = {p: importlib.metadata.version(p)
                for p in ("llama-cpp-python", "gguf", "tokenizers", "jinja2", "numpy")}
    return {"made_by": "tests/reference/make_goldens.py", "versions": versions, "python": platform.python_version(),
            "model": {"name": "SmolLM2-135M-Instruct.Q4_1.gguf", "sha256": MODEL_SHA256, "bytes": MODEL_BYTES}}


def tokenizer_goldens(model: str, out: str) -> dict[str, list[int]]:
    engine = llama_cpp.Llama(model_path=model, vocab_only=True, verbose=False)
    other = hf_tokenizer(model)
    entries, ids = [], {}
    texts = [(name, text, None) for name, text in PROMPTS.items()]
    texts += [(name, render(model, messages), messages) for name, messages in CHATS.items()]
    for name, text, messages in texts:
        tokens = engine.tokenize(text.encode("utf-8"), add_bos=True, special=True)
        plain = engine.tokenize(text.encode("utf-8"), add_bos=True, special=False)
        entry = {"name": name, "text": text, "tokens": tokens}
        if plain != tokens:
            entry["plain_tokens"] = plain  # special tokens not parsed
        if messages is not None:
            entry["messages"] = messages
        entry["hf_agrees"] = other.encode(text, add_special_tokens=False).ids == tokens
        entries.append(entry)
        ids[name] = tokens
    head = provenance() | {
        "what": "text -> token ids of llama.cpp; chat messages -> text rendered by jinja2 from the file's template",
        "hf_agreements": sum(e["hf_agrees"] for e in entries), "count": len(entries)}
    write_lines(os.path.join(out, "tokenizer.json"), head, entries)
    return ids


def generation_goldens(model: str, out: str, ids: dict[str, list[int]], threads: int) -> None:
    batches = [(names, [ids[name] for name in names]) for names in groups(ids)]
    with tempfile.TemporaryDirectory() as scratch:
        exact_path = os.path.join(scratch, "f32.gguf")
        write_f32_copy(model, exact_path)
        engine = Engine(exact_path, F32, threads)
        references = [greedy(engine, prompts) for _, prompts in batches]
        engine.close()
        engine = Engine(exact_path, F16, threads)
        errors = [forced_errors(engine, prompts, reference)
                  for (_, prompts), (reference, _) in zip(batches, references)]
        engine.close()
    engine = Engine(model, F16, threads)
    quantised = [greedy(engine, prompts)[0] for _, prompts in batches]
    engine.close()

    entries = []
    for (names, prompts), (reference, first), error, other in zip(batches, references, errors, quantised):
        for i, name in enumerate(names):
            entry = {"name": name, "prompt_tokens": len(prompts[i])} | reference[i]
            entry |= {"kv_f16_error": round(error[i], 5), "quantised_agrees": other[i]["tokens"] == entry["tokens"]}
            if name in LOGIT_PROMPTS:
                top = np.argsort(-first[i], kind="stable")[:TOP_LOGITS]
                entry["top"] = [[int(t), round(float(first[i][t]), 4)] for t in top]
            entries.append(entry)
    head = provenance() | {
        "what": "greedy continuations by llama.cpp on the file dequantised to F32 with an F32 KV cache; per step the "
                "best and second-best token and logit; end-of-generation tokens do not stop it",
        "continuation": CONTINUATION, "count": len(entries),
        "kv_f16_error_max": max(e["kv_f16_error"] for e in entries),
        "quantised_llama_cpp_agreements": sum(e["quantised_agrees"] for e in entries)}
    write_lines(os.path.join(out, "generation.json"), head, entries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "goldens"))
    parser.add_argument("--tokenizer-only", action="store_true", help="skip the generation golden file")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    check_model(options.model)
    os.makedirs(options.out, exist_ok=True)
    ids = tokenizer_goldens(options.model, options.out)
    if not options.tokenizer_only:
        generation_goldens(options.model, options.out, {name: tokens for name, tokens in ids.items() if tokens},
                           options.threads)


if __name__ == "__main__":
    main()
