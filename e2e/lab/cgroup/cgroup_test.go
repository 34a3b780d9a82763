package cgroup_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/lab/cgroup"
)

func TestNodeGroupsAcceptProcessesAndAreRemoved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test creates cgroups: run it as root")
	}
	groups, err := cgroup.Find(fmt.Sprintf("vicinity-test-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cgroup.Remove(groups.Folders(), time.Minute); err != nil {
			t.Error(err)
		}
	})
	node, err := groups.AddNode("node-1")
	if err != nil {
		t.Fatal(err)
	}
	sleeper := exec.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sleeper.Process.Kill() })
	leaves := node.Folders
	if node.Leaf != "" {
		leaves = []string{node.Leaf} // cgroup v2
	}
	for _, folder := range leaves {
		if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(sleeper.Process.Pid)), 0); err != nil {
			t.Errorf("a process failed to join: %v", err)
		}
	}

	// Remove must wait: a killed process leaves its groups a moment later.
	if err := sleeper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = sleeper.Wait() }() // killed
	if err := cgroup.Remove(groups.Folders(), time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, folder := range groups.Folders() {
		if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s still exists: %v", folder, err)
		}
	}
}

func TestAGroupWithAProcessIsNotRemoved(t *testing.T) {
	groups, err := cgroup.Find(fmt.Sprintf("vicinity-test-busy-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	node, err := groups.AddNode("node-1")
	if err != nil {
		t.Fatal(err)
	}
	folder := node.Folders[0]
	if node.Leaf != "" {
		folder = node.Leaf
	}
	sleeper := exec.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(sleeper.Process.Pid)), 0); err != nil {
		t.Error(err)
	}
	if err := cgroup.Remove(groups.Folders(), 0); err == nil {
		t.Error("removing a group that has a process returned no error")
	}
	if err := sleeper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = sleeper.Wait() // killed
	if err := cgroup.Remove(groups.Folders(), time.Minute); err != nil {
		t.Error(err)
	}
}
