//go:build envoy

package xds

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/xds"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/reserve"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// TestEnvoy checks that Envoy gets its endpoints from our server, with their priorities, and fails over to the next
// priority by outlier detection.
func TestEnvoy(t *testing.T) {
	program := os.Getenv("ENVOY")
	if program == "" {
		t.Fatal("$ENVOY must be the path of an Envoy")
	}
	s := newFixture(t)
	local, zone, far := s.startBackend("node-1", "a"), s.startBackend("node-2", "a"), s.startBackend("node-3", "b")
	s.serve([]policy.Key{policy.Zone, policy.AnyNode}, local, zone, far)
	s.completeSync()
	admin, listener := reserve.OnLoopback(t).Port(), reserve.OnLoopback(t).Port()
	config := filepath.Join(t.TempDir(), "envoy.yaml")
	must.Succeed(t, os.WriteFile(config, []byte(fmt.Sprintf(envoyConfig, admin, listener,
		strings.TrimPrefix(s.address, xds.SocketPrefix))), 0o600))
	cmd := exec.Command(program, "--config-path", config, "--disable-hot-restart", "--concurrency", "1")
	log := logs.New(t, "Envoy")
	cmd.Stdout, cmd.Stderr = log, log
	must.Succeed(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // the status of a killed process is an error
	})
	page := func(path string) string {
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", admin, path))
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		must.Succeed(t, err)
		return string(text)
	}
	wait.Equal(t, "Envoy's readiness", "LIVE\n", func() string { return page("/ready") })
	for endpoint, priority := range map[endpoint]int{local: 0, zone: 0, far: 1} {
		wait.Until(t, fmt.Sprintf("%s has priority %d in /clusters", endpoint.addr, priority), func() bool {
			return strings.Contains(page("/clusters"), fmt.Sprintf("web::%s::priority::%d\n", endpoint.addr, priority))
		})
	}
	c := startClient(t, "unix:///nowhere")
	through := command{Channel: "envoy", Target: fmt.Sprintf("passthrough:///127.0.0.1:%d", listener), Calls: 60, Timeout: 5000}
	got := c.do(through)
	if count := got.Answers[local.addr.String()]; count < 25 || count > 35 || got.Answers[far.addr.String()] > 0 || len(got.Errors) > 0 {
		t.Errorf("replies through Envoy: %s; errors %s", formatCounts(got.Answers), formatCounts(got.Errors))
	}
	s.failBackend(local)
	s.failBackend(zone)
	wait.Until(t, "the next tier serves all calls", func() bool { return c.do(through).Answers[far.addr.String()] == 60 })
	s.restartBackend(local)
	s.serve([]policy.Key{policy.Zone, policy.AnyNode}, local)
	wait.Until(t, "an endpoint that is sent again serves all calls", func() bool { return c.do(through).Answers[local.addr.String()] == 60 })
	if rejected := s.counts.get("rejected EDS"); rejected > 0 {
		t.Errorf("%d responses were rejected", rejected)
	}
}
