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

// byGRPCJS makes calls with grpc-js, once this number of servers have replied. `make xds-grpc-js` installs it.
func (s *stage) byGRPCJS(calls, servers int) results {
	s.t.Helper()
	cmd := exec.Command("node", "client.js", webTarget, fmt.Sprint(calls), fmt.Sprint(servers))
	cmd.Dir = "grpc-js"
	cmd.Env = append(os.Environ(), fmt.Sprintf(`GRPC_XDS_BOOTSTRAP_CONFIG={"xds_servers":[{"server_uri":%q,`+
		`"channel_creds":[{"type":"insecure"}],"server_features":["xds_v3"]}],"node":{"id":"js","locality":{}}}`, s.address))
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	must.Succeed(s.t, err)
	var got results
	must.Succeed(s.t, json.Unmarshal(output, &got))
	return got
}

// TestGRPCJSReachesTheFirstTier checks that calls are spread evenly over the first tier, and go to the next tier when
// the first refuses connections.
func TestGRPCJSReachesTheFirstTier(t *testing.T) {
	s := newStage(t)
	here, zone, other, far := s.backend("node-1", "a"), s.backend("node-2", "a"), s.backend("node-3", "a"), s.backend("node-4", "b")
	s.serve([]policy.Key{policy.Zone, policy.AnyNode}, here, zone, other, far)
	s.open()
	got := s.byGRPCJS(90, 3)
	for _, near := range []endpoint{here, zone, other} {
		if count := got.Answers[near.addr.String()]; count < 25 || count > 35 {
			t.Errorf("%s served %d of 90: %s; errors %s", near.addr, count, inShort(got.Answers), inShort(got.Errors))
		}
	}
	for _, near := range []endpoint{here, zone, other} {
		s.fail(near)
	}
	if got := s.byGRPCJS(10, 1); got.Answers[far.addr.String()] != 10 {
		t.Errorf("replies from the next tier: %s; errors %s", inShort(got.Answers), inShort(got.Errors))
	}
	s.serve([]policy.Key{policy.Zone}, far)
	if got := s.byGRPCJS(3, 1); len(got.Answers) > 0 || len(got.Errors) == 0 {
		t.Errorf("replies with a hard key: %s; errors %s", inShort(got.Answers), inShort(got.Errors))
	}
	if rejected := s.counts.get("rejected EDS") + s.counts.get("rejected CDS") + s.counts.get("rejected LDS"); rejected > 0 {
		t.Errorf("%d responses were rejected", rejected)
	}
}
