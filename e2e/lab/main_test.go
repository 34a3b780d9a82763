package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/lab/cluster"
)

// keeperEnv makes the test binary act as a keeper: a process that holds the lock of a folder until it is killed.
const keeperEnv = "VICINITY_TEST_KEEPER"

func TestMain(m *testing.M) {
	if folder := os.Getenv(keeperEnv); folder != "" {
		if err := takeLock(cluster.Folder(folder)); err != nil {
			os.Exit(1)
		}
		fmt.Println("held")
		for { // not select, which without cgo is a deadlock
			time.Sleep(time.Hour)
		}
	}
	if len(os.Args) > 1 && os.Args[1] == "keeper" { // `up` starts this program as its keeper
		main()
	}
	os.Exit(m.Run())
}

// startHolder starts another process that holds the lock of a folder.
func startHolder(t *testing.T, folder cluster.Folder) *exec.Cmd {
	t.Helper()
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), keeperEnv+"="+string(folder))
	output, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Process.Kill() })
	line := make([]byte, len("held\n"))
	if _, err := output.Read(line); err != nil {
		t.Fatal(err)
	}
	return holder
}

func keeperIn(t *testing.T, folder cluster.Folder) int {
	t.Helper()
	pid, err := keeperOf(folder)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestTheLockReportsTheKeeper(t *testing.T) {
	folder := cluster.Folder(t.TempDir())
	if pid := keeperIn(t, folder); pid != 0 {
		t.Errorf("keeper of a lab that was never started: process %d, want none", pid)
	}
	holder := startHolder(t, folder)
	if pid := keeperIn(t, folder); pid != holder.Process.Pid {
		t.Errorf("keeper is process %d, want %d", pid, holder.Process.Pid)
	}
	if err := takeLock(folder); !errors.Is(err, errAlreadyRunning) {
		t.Errorf("a second keeper: %v, want %v", err, errAlreadyRunning)
	}
	if err := checkNoLab(folder); !errors.Is(err, errAlreadyRunning) {
		t.Errorf("up next to a running lab: %v, want %v", err, errAlreadyRunning)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // killed
	if pid := keeperIn(t, folder); pid != 0 {
		t.Errorf("keeper after it was killed: process %d, want none", pid)
	}
}

func TestDownEndsALabOnceAndMayBeCalledAgain(t *testing.T) {
	folder := cluster.Folder(filepath.Join(t.TempDir(), "lab"))
	if err := os.MkdirAll(folder.Logs(), 0o755); err != nil {
		t.Fatal(err)
	}
	holder := startHolder(t, folder)
	go func() { _ = holder.Wait() }() // terminated
	for range 2 {
		if err := down(folder); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(string(folder)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the folder is still there: %v", err)
		}
	}
}

func TestDownKeepsUserFiles(t *testing.T) {
	folder := cluster.Folder(t.TempDir())
	for _, path := range []string{folder.Kubeconfig(), filepath.Join(string(folder), "notes")} {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := down(folder); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(folder.Kubeconfig()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the kubeconfig is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(string(folder), "notes")); err != nil {
		t.Errorf("the user's notes: %v", err)
	}
}

func TestUpReportsErrorsBeforeAnythingIsStarted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lab")
	for name, test := range map[string]struct {
		options cluster.Options
		want    string
	}{
		"no nodes":     {options: cluster.Options{}, want: "--nodes 0: want 1 to 20"},
		"no manifests": {options: cluster.Options{Nodes: 1, Manifests: "/no/manifests"}, want: "--install: there is no /no/manifests"},
		"missing webhook component": {
			options: cluster.Options{Nodes: 1, Manifests: noInstall, WebhookComponents: []string{filepath.Dir(dir), "/no/component"}},
			want:    "--webhook-components: there is no /no/component",
		},
		"missing webhook manifests": {
			options: cluster.Options{Nodes: 1, Manifests: filepath.Dir(dir), Proxy: filepath.Dir(dir), WebhookManifests: "/no/webhook"},
			want:    "--install-webhook: there is no /no/webhook",
		},
		"webhook not built": {
			options: cluster.Options{
				Nodes: 1, Manifests: filepath.Dir(dir), Proxy: filepath.Dir(dir), WebhookManifests: filepath.Dir(dir), Webhook: "/no/webhook",
			},
			want: "--webhook-binary: there is no /no/webhook: run `make build` first",
		},
		"nothing built": {options: cluster.Options{Nodes: 1, Manifests: filepath.Dir(dir), Proxy: "/no/proxy"}, want: "run `make build` first"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := completeOptions(test.options, dir)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %s", err, test.want)
			}
		})
	}
	withoutVicinity := cluster.Options{
		Nodes: 1, Manifests: noInstall, Proxy: "/no/proxy", WebhookManifests: "manifests/webhook", Webhook: "/no/webhook",
	}
	got, err := completeOptions(withoutVicinity, dir)
	if err != nil {
		t.Errorf("a lab without Vicinity needs its programs: %v", err)
	}
	if got.Manifests+got.Proxy+got.WebhookManifests+got.Webhook != "" {
		t.Errorf("options %+v, want nothing to install", got)
	}
}

func TestTheKeepersReportIsFollowedUntilItIsReadyOrEnds(t *testing.T) {
	for name, test := range map[string]struct {
		report string
		ready  bool
		want   string
	}{
		"ready":  {report: `{"step":"one"}` + "\n" + `{"ready":true}` + "\n" + `{"step":"two"}` + "\n", ready: true, want: "one\n"},
		"failed": {report: `{"error":"no etcd"}` + "\n", want: "no etcd\n"},
		"killed": {report: `{"step":"one"}` + "\n", want: "one\n"},
		"broken": {report: "panic\n", want: "panic\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var progress bytes.Buffer
			if ready := printProgress(strings.NewReader(test.report), &progress); ready != test.ready {
				t.Errorf("ready: %t, want %t", ready, test.ready)
			}
			if progress.String() != test.want {
				t.Errorf("progress %q, want %q", progress.String(), test.want)
			}
		})
	}
}

func TestEveryCommandExplainsItself(t *testing.T) {
	for _, command := range []string{"", "up ", "down ", "status ", "exec ", "stop ", "start ", "build "} {
		args := strings.Fields(command + "--help")
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, &stdout, &stderr); code != exitOK {
			t.Errorf("%v: exit status %d, want %d: %s", args, code, exitOK, &stderr)
		}
		if !strings.Contains(stdout.String(), "Usage:") || strings.Contains(stdout.String(), "keeper") {
			t.Errorf("%v: help lacks a usage or mentions the hidden keeper:\n%s", args, &stdout)
		}
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"sideways"}, &stdout, &stderr); code != exitFailure || stderr.Len() == 0 {
		t.Errorf("an unknown command: exit status %d and error %q, want %d and an error", code, &stderr, exitFailure)
	}
}
