// Package layers_test tests that the scripts for Debian packages work wherever the cache folder is.
package layers_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// mountDirectories mounts a tmpfs at possible parents of a cache folder: below what the scripts mount over, and elsewhere. A
// tmpfs stands for a separate disk, as /var/lib often has, which a layer over the machine's folder does not show.
const mountDirectories = `
set -eu
for place in /etc/opt /usr/local /var/opt /run /tmp /mnt; do
	mount -t tmpfs tmpfs $place
done
exec "$@"
`

// keepAndUse writes a file in each layer, and reads it with a program next to the layers. It runs in another network
// namespace, like a node: its /sys shows other links.
const keepAndUse = `
set -eu
cache="$1/a space, a comma: and a colon" name=vicinity-test-of-layers
mkdir -p "$cache/layers"
printf '#!/bin/sh\ncat "$@"' >"$cache/read"
chmod +x "$cache/read"
./write "$cache/layers" sh -euc 'for top in etc usr var; do echo "$0 in $top" >/$top/$0; done' $name
for top in etc usr var; do
	if [ -e /$top/$name ]; then echo "the machine has /$top/$name" >&2; exit 1; fi
done
unshare --net ./over "$cache/layers" "$cache/read" /etc/$name /usr/$name /var/$name
`

func TestTheCacheFolderMayBeInAnyDirectory(t *testing.T) {
	for _, script := range []string{"write", "over"} { // makes go test run again when one of them changes
		_, err := os.ReadFile(script)
		must.Succeed(t, err)
	}
	for _, place := range []string{"/etc/opt", "/usr/local", "/var/opt", "/run", "/tmp", "/mnt"} {
		expectKept(t, place, "unshare", "--mount", "sh", "-c", mountDirectories, "places")
	}
	// These are file systems of the machine itself.
	for _, place := range []string{"/etc", "/usr", "/var", "/run", "/tmp"} {
		folder, err := os.MkdirTemp(place, "vicinity-test-") //nolint:usetesting // each place is one to be tested
		must.Succeed(t, err)
		t.Cleanup(func() { must.Succeed(t, os.RemoveAll(folder)) })
		expectKept(t, folder)
	}
}

// expectKept runs keepAndUse with layers below a folder, and checks its output.
func expectKept(t *testing.T, folder string, wrapper ...string) {
	t.Helper()
	command := append(wrapper, "sh", "-c", keepAndUse, "keep-and-use", folder)
	output, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	const name = "vicinity-test-of-layers"
	want := strings.Join([]string{name + " in etc", name + " in usr", name + " in var", ""}, "\n")
	if err != nil || string(output) != want {
		t.Errorf("layers below %s: error %v, output\n%s\nwant\n%s", filepath.Clean(folder), err, output, want)
	}
}
