package process_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/lab/process"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// starterEnv makes the test binary start a program, print its process id, and wait to be killed.
const starterEnv = "VICINITY_TEST_STARTER"

func TestMain(m *testing.M) {
	if logs := os.Getenv(starterEnv); logs != "" {
		p, err := process.Start(process.CurrentNamespace{}, logs, "sleep", exec.Command("sleep", "1000"))
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(p.PID())
		<-p.Done()
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// hasExited reports whether a process has exited. It is a zombie until its parent waits for it.
func hasExited(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(status), ") Z ")
}

func TestAProgramDiesWithTheProcessThatStartedIt(t *testing.T) {
	starter := exec.Command(os.Args[0])
	starter.Env = append(os.Environ(), starterEnv+"="+t.TempDir())
	output, err := starter.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = starter.Process.Kill() })
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the starter printed %q", line)
	}
	if hasExited(pid) {
		t.Fatal("the program exited before its starter")
	}
	if err := starter.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = starter.Wait() // killed
	wait.Until(t, "the program has exited", func() bool { return hasExited(pid) })
}

func start(t *testing.T, args ...string) *process.Process {
	t.Helper()
	p, err := process.Start(process.CurrentNamespace{}, t.TempDir(), "program", exec.Command(args[0], args[1:]...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	return p
}

func TestAProgramThatEndedReportsHowAndItsLastOutput(t *testing.T) {
	p := start(t, "sh", "-c", "echo first; echo last >&2; exit 3")
	got := p.ExitError().Error()
	for _, want := range []string{"program exited (exit status 3)", p.Log, "first\n    last"} {
		if !strings.Contains(got, want) {
			t.Errorf("error lacks %q: %s", want, got)
		}
	}
}

func TestAProgramIsTerminatedAndKilledIfItDoesNotEnd(t *testing.T) {
	for name, test := range map[string]struct {
		script  string
		timeout time.Duration
		want    string
	}{
		"a program that handles SIGTERM": {
			script: `trap "exit 0" TERM; echo ready; while :; do sleep 0.01; done`, timeout: time.Minute, want: "exit status 0",
		},
		"a program that ignores SIGTERM": {script: `trap "" TERM; echo ready; while :; do sleep 0.01; done`, want: "signal: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, "sh", "-c", test.script)
			wait.Until(t, "the program is ready", func() bool { return strings.Contains(p.LastOutput(), "ready") })
			if err := p.Stop(test.timeout); err != nil {
				t.Fatal(err)
			}
			if got := p.ExitError().Error(); !strings.Contains(got, test.want) {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if err := p.Kill(); err != nil {
				t.Errorf("kill of an exited process: %v", err)
			}
		})
	}
}

func TestAProgramThatDoesNotExistIsAnError(t *testing.T) {
	_, err := process.Start(process.CurrentNamespace{}, t.TempDir(), "program", exec.Command("/no/such/program"))
	if err == nil || !strings.Contains(err.Error(), "start program") {
		t.Errorf("got error %v, want one that names the program", err)
	}
}

func TestAProgramDoesNotGetTheSignalsOfOurTerminal(t *testing.T) {
	p := start(t, "sleep", "1000")
	group, err := syscall.Getpgid(p.PID())
	if err != nil {
		t.Fatal(err)
	}
	if group == syscall.Getpgrp() {
		t.Error("the program is in our process group")
	}
}
