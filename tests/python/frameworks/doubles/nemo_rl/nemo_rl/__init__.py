# SPDX-License-Identifier: Apache-2.0
"""A double of NeMo-RL (commit 7ea279a, August 2026), of what weft.nemo touches: names and signatures, and no code of it."""
