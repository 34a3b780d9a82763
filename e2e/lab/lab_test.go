package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/e2e/lab/cluster"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// machineState is the state of the machine that a lab must not change.
type machineState struct {
	Links, Mounts, Ruleset string
	Sysctls                map[string]string
}

func readMachineState(t *testing.T) machineState {
	t.Helper()
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	ruleset, err := exec.CommandContext(t.Context(), "nft", "list", "ruleset").Output()
	if err != nil {
		t.Fatalf("nft list ruleset: %v", err)
	}
	var links []string
	for line := range strings.Lines(read("/proc/thread-self/net/dev")) {
		if name, _, ok := strings.Cut(line, ":"); ok { // not the packet counters, which change all the time
			links = append(links, strings.TrimSpace(name))
		}
	}
	return machineState{
		Links: strings.Join(links, " "), Mounts: mountsOfLabs(read("/proc/self/mounts")), Ruleset: string(ruleset), Sysctls: sysctls(t),
	}
}

// mountsOfLabs returns the mounts that a lab could have created or covered. Other mounts change with the machine's
// other programs: `ip netns add` creates one.
func mountsOfLabs(mounts string) string {
	var found strings.Builder
	for line := range strings.Lines(mounts) {
		target := strings.Fields(line)[1]
		for _, root := range []string{
			os.TempDir(), "/proc", "/sys", "/dev", "/var/lib/kubelet", "/var/lib/containerd", "/run/containerd", "/run/netns/cni-", "/etc", "/opt",
		} {
			if strings.HasPrefix(target, root) {
				found.WriteString(line)
				break
			}
		}
	}
	return found.String()
}

// sysctls returns the settings that kubelet and CNI plugins write, and all network settings.
func sysctls(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, name := range []string{"vm", "kernel/keys", "kernel/panic", "kernel/panic_on_oops", "net/ipv4", "net/ipv6", "net/bridge"} {
		root := filepath.Join("/proc/sys", name)
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			// Some are write-only, and some are not readable for us.
			if value, err := os.ReadFile(path); err == nil {
				found[path] = string(value)
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return found
}

func TestLabLeavesMachineUnchanged(t *testing.T) {
	before := readMachineState(t)
	dir := filepath.Join(t.TempDir(), "lab")
	t.Cleanup(func() {
		if err := down(cluster.Folder(dir)); err != nil {
			t.Error(err)
		}
	})
	mustRun(t, "up", "--dir", dir, "--nodes", "1", "--install", "none", "--kube-proxy")

	nodes := mustRun(t, "status", "--dir", dir)
	for _, want := range []string{"node-1", "true", "zone-a", "rack-1", "172.30.0.1", "10.244.1.0/24"} {
		if !strings.Contains(nodes, want) {
			t.Errorf("status lacks %s:\n%s", want, nodes)
		}
	}
	if tables := mustRun(t, "exec", "--dir", dir, "node-1", "nft", "list", "tables"); !strings.Contains(tables, "table ip kube-proxy") {
		t.Errorf("the node lacks kube-proxy's tables:\n%s", tables)
	}
	mustRun(t, "stop", "--dir", dir, "node-1")
	if got := run(t.Context(), []string{"exec", "--dir", dir, "node-1", "nft", "list", "tables"}, io.Discard, io.Discard); got != exitFailure {
		t.Errorf("lab exec on a stopped node: exit status %d, want %d", got, exitFailure)
	}
	mustRun(t, "start", "--dir", dir, "node-1")
	if nodes := mustRun(t, "status", "--dir", dir); !strings.Contains(nodes, "true") {
		t.Errorf("a node that was stopped and started is not ready:\n%s", nodes)
	}
	if diff := cmp.Diff(before, readMachineState(t)); diff != "" {
		t.Errorf("the machine changed while the lab runs (-before +now):\n%s", diff)
	}

	mustRun(t, "down", "--dir", dir)
	if diff := cmp.Diff(before, readMachineState(t)); diff != "" {
		t.Errorf("the machine changed after the lab ended (-before +now):\n%s", diff)
	}
	groups, err := filepath.Glob("/sys/fs/cgroup/*/" + groupsOf(cluster.Folder(dir)))
	if err != nil || len(groups) > 0 {
		t.Errorf("leftover cgroups: %v, %v", groups, err)
	}
}

func mustRun(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	var out, stderr bytes.Buffer
	if code := run(t.Context(), args, &out, &stderr); code != exitOK {
		t.Fatalf("lab %s: exit status %d\n%s", strings.Join(args, " "), code, &stderr)
	}
	return out.String()
}

func TestALabEndsWithItsKeeper(t *testing.T) {
	folder := cluster.Folder(filepath.Join(t.TempDir(), "lab"))
	t.Cleanup(func() {
		if err := down(folder); err != nil {
			t.Error(err)
		}
	})
	mustRun(t, "up", "--dir", string(folder), "--nodes", "1", "--install", "none")
	node, err := firstProcess(folder, "node-1")
	if err != nil {
		t.Fatal(err)
	}

	if err := unix.Kill(keeperIn(t, folder), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the first process of node-1 ("+node+") has exited with the keeper", func() bool {
		status, err := os.ReadFile(filepath.Join("/proc", node, "stat"))
		return err != nil || strings.Contains(string(status), ") Z ") // a zombie, if no process reaps orphans here
	})
	var out, stderr bytes.Buffer
	if code := run(t.Context(), []string{"status", "--dir", string(folder)}, &out, &stderr); code != exitFailure {
		t.Errorf("status reports a running lab: %s", &out)
	}
	mustRun(t, "down", "--dir", string(folder))
}
