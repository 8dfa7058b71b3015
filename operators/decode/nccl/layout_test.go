// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// neighbours are NCCL's functions as a compiler without control-flow protection places them: with
// nothing that marks where one ends and the next begins.
const neighbours = `
struct comm { char before[0x34248]; unsigned long hash; int rank, size, device; };
int ncclGetVersion(int *version) { *version = 22203; return 0; }
int ncclCommUserRank(const struct comm *c, int *out) { *out = c->rank; return 0; }
int ncclCommCount(const struct comm *c, int *out) { *out = c->size; return 0; }
int ncclCommCuDevice(const struct comm *c, int *out) { *out = c->device; return 0; }
`

func TestAFunctionEndsWhereItsSymbolSays(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("layouts are known on x86-64")
	}
	path := filepath.Join(t.TempDir(), "libnccl.so.2")
	source := path + ".c"
	require.NoError(t, os.WriteFile(source, []byte(neighbours), 0o600))
	out, err := exec.Command("cc", "-O1", "-fcf-protection=none", "-shared", "-fPIC", "-o", path, source).CombinedOutput()
	require.NoError(t, err, string(out))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	st, err := f.Stat()
	require.NoError(t, err)
	l, err := Inspect(f, st.Size(), nil)
	require.NoError(t, err)
	require.NoError(t, l.Layout())
	require.Equal(t, 22203, l.Version)
	require.EqualValues(t, 0x34248, l.hash)
}
