//go:build grpcjs

package xds

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// callFromGRPCJS makes calls with grpc-js, once this number of servers have replied. `make xds-grpc-js` installs it.
func (f *fixture) callFromGRPCJS(calls, servers int) results {
	f.t.Helper()
	cmd := exec.Command("node", "client.js", webTarget, fmt.Sprint(calls), fmt.Sprint(servers))
	cmd.Dir = "grpc-js"
	cmd.Env = append(os.Environ(), fmt.Sprintf(`GRPC_XDS_BOOTSTRAP_CONFIG={"xds_servers":[{"server_uri":%q,`+
		`"channel_creds":[{"type":"insecure"}],"server_features":["xds_v3"]}],"node":{"id":"js","locality":{}}}`, f.address))
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	must.Succeed(f.t, err)
	var got results
	must.Succeed(f.t, json.Unmarshal(output, &got))
	return got
}

// TestGRPCJSReachesTheFirstTier checks that calls are spread evenly over the first tier, and go to the next tier when
// the first refuses connections.
func TestGRPCJSReachesTheFirstTier(t *testing.T) {
	s := newFixture(t)
	local, zone, other, far := s.startBackend("node-1", "a"), s.startBackend("node-2", "a"), s.startBackend("node-3", "a"),
		s.startBackend("node-4", "b")
	s.serve([]policy.Key{policy.Zone, policy.AnyNode}, local, zone, other, far)
	s.completeSync()
	got := s.callFromGRPCJS(90, 3)
	for _, near := range []endpoint{local, zone, other} {
		if count := got.Answers[near.addr.String()]; count < 25 || count > 35 {
			t.Errorf("%s served %d of 90: %s; errors %s", near.addr, count, formatCounts(got.Answers), formatCounts(got.Errors))
		}
	}
	for _, near := range []endpoint{local, zone, other} {
		s.failBackend(near)
	}
	if got := s.callFromGRPCJS(10, 1); got.Answers[far.addr.String()] != 10 {
		t.Errorf("replies from the next tier: %s; errors %s", formatCounts(got.Answers), formatCounts(got.Errors))
	}
	s.serve([]policy.Key{policy.Zone}, far)
	if got := s.callFromGRPCJS(3, 1); len(got.Answers) > 0 || len(got.Errors) == 0 {
		t.Errorf("replies with a hard key: %s; errors %s", formatCounts(got.Answers), formatCounts(got.Errors))
	}
	if rejected := s.counts.get("rejected EDS") + s.counts.get("rejected CDS") + s.counts.get("rejected LDS"); rejected > 0 {
		t.Errorf("%d responses were rejected", rejected)
	}
}
