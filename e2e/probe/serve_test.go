package main

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/fabric/fabrictest"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// probeEnv makes the test binary act as a probe.
const probeEnv = "VICINITY_TEST_PROBE"

func TestMain(m *testing.M) {
	if os.Getenv(probeEnv) != "" {
		os.Args = []string{"probe", "serve"}
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// startProbe starts a probe in a pod's network namespace, where its ports are free.
func startProbe(t *testing.T, environment ...string) (*fabric.Pod, *fabric.Process, *logs.Log) {
	t.Helper()
	node, err := fabrictest.New(t).AddNode("node-1")
	must.Succeed(t, err)
	pod, err := node.AddPod("web-1")
	must.Succeed(t, err)
	log := logs.New(t, "the probe")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), probeEnv+"=1", "POD_NAME=web-1"), environment...)
	cmd.Stdout, cmd.Stderr = log, log
	process, err := pod.Start(cmd)
	must.Succeed(t, err)
	log.WaitFor(t, "web-1 serves")
	return pod, process, log
}

// greetingOf returns the server name and the client address in the greeting of a pod's probe.
func greetingOf(t *testing.T, pod *fabric.Pod) string {
	t.Helper()
	conn, err := pod.Node.Dial("tcp", net.JoinHostPort(pod.IPv4.String(), "8080"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	server, client, err := greet(conn, "tcp")
	if err != nil {
		t.Fatal(err)
	}
	return server + " " + client
}

func TestAProbeServesForItsGracePeriod(t *testing.T) {
	pod, process, log := startProbe(t, "GRACE=10m")
	want := "web-1 " + pod.Node.IPv4.String()
	if got := greetingOf(t, pod); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	log.WaitFor(t, "web-1 continues for 10m")
	if got := greetingOf(t, pod); got != want {
		t.Errorf("while terminating: got %q, want %q", got, want)
	}
}

func TestAProbeWithoutAGracePeriodEndsAtOnce(t *testing.T) {
	_, process, _ := startProbe(t)
	if err := process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(); err != nil {
		t.Errorf("the probe exited with %v", err)
	}
}

func TestAProbeWithoutANameDoesNotStart(t *testing.T) {
	t.Setenv("POD_NAME", "")
	if err := run(t.Context(), []string{"serve"}, &logs.Log{}); err == nil || !strings.Contains(err.Error(), "POD_NAME") {
		t.Errorf("got error %v", err)
	}
}

func TestAnUnknownCommandIsExplained(t *testing.T) {
	for _, args := range [][]string{{}, {"server"}, {"serve", "all"}, {"sabotage"}} {
		if err := run(t.Context(), args, &logs.Log{}); err == nil || !strings.Contains(err.Error(), "probe serve") {
			t.Errorf("%v: got error %v", args, err)
		}
	}
}
