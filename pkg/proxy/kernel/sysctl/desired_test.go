package sysctl

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestConntrackSettings(t *testing.T) {
	const hour = 3600
	tests := map[string]struct {
		settings Conntrack
		cores    int
		want     []DesiredValue
	}{
		"nothing": {Conntrack{}, 4, nil},
		"kube-proxy's defaults on a small machine": {
			Conntrack{MaxPerCore: 32768, Min: 131072, TCPEstablishedTimeout: 24 * time.Hour, TCPCloseWaitTimeout: time.Hour}, 2,
			[]DesiredValue{
				{conntrackMax, 131072, true, true}, {conntrackBuckets, 32768, true, false},
				{tcpTimeoutEstablished, 24 * hour, false, false}, {tcpTimeoutCloseWait, hour, false, false},
			},
		},
		"scales with the cores": {
			Conntrack{MaxPerCore: 32768, Min: 131072}, 8, []DesiredValue{{conntrackMax, 262144, true, true}, {conntrackBuckets, 65536, true, false}},
		},
		"at most a million": {
			Conntrack{MaxPerCore: 32768, Min: 131072}, 512,
			[]DesiredValue{{conntrackMax, 1 << 20, true, true}, {conntrackBuckets, 1 << 18, true, false}},
		},
		"a minimum above a million": {
			Conntrack{MaxPerCore: 1, Min: 1 << 21}, 2, []DesiredValue{{conntrackMax, 1 << 21, true, true}, {conntrackBuckets, 1 << 19, true, false}},
		},
		"the largest MaxPerCore": {
			Conntrack{MaxPerCore: 1<<31 - 1}, 512, []DesiredValue{{conntrackMax, 1 << 20, true, true}, {conntrackBuckets, 1 << 18, true, false}},
		},
		"without a maximum the minimum has no effect": {Conntrack{Min: 131072}, 4, nil},
		"everything else": {
			Conntrack{TCPBeLiberal: true, UDPTimeout: 90 * time.Second, UDPStreamTimeout: 1500 * time.Millisecond}, 1,
			[]DesiredValue{{udpTimeout, 90, false, false}, {udpTimeoutStream, 1, false, false}, {tcpBeLiberal, 1, false, false}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.settings.Settings(test.cores)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
