# SPDX-License-Identifier: Apache-2.0
"""A double of verl 0.9.1, of what weft.verl touches: it has the names and signatures, and no code of it."""
