// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyTheFirstPIDNamespaceIsNotNested(t *testing.T) {
	require.NoError(t, checkInode(4026531836), "as readlink /proc/1/ns/pid has it")
	require.ErrorIs(t, checkInode(4026532412), ErrNested)
	require.NoError(t, CheckNamespace(t.TempDir()), "not known")
}

// TestIDsOfAContainerAreNested: the procfs decides, which a new namespace need not have.
func TestIDsOfAContainerAreNested(t *testing.T) {
	switch os.Getenv("PROCFS_IN_TEST") {
	case "own":
		require.ErrorIs(t, CheckNamespace("/proc"), ErrNested)
		return
	case "of the machine":
		require.NoError(t, CheckNamespace("/proc"))
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("PID namespaces need root")
	}
	if err := CheckNamespace("/proc"); err != nil {
		t.Skip("this test is in a container: ", err)
	}
	for procfs, option := range map[string]string{"own": "--mount-proc", "of the machine": "--kill-child"} {
		cmd := exec.Command("unshare", "--pid", "--fork", option, os.Args[0], "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "PROCFS_IN_TEST="+procfs)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
}
