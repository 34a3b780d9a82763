package config

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPodsAddressesAreRead(t *testing.T) {
	tests := map[string]struct {
		list   string
		want   []string
		reason string
	}{
		"none":                   {list: ""},
		"one":                    {list: "10.244.0.0/16", want: []string{"10.244.0.0/16"}},
		"one of each family":     {list: "10.244.0.0/16,fd00:10:244::/56", want: []string{"10.244.0.0/16", "fd00:10:244::/56"}},
		"spaces after the comma": {list: "10.244.0.0/16, fd00::/56", want: []string{"10.244.0.0/16", "fd00::/56"}},
		"bits after the prefix":  {list: "10.244.3.7/16,fd00::1/64", want: []string{"10.244.0.0/16", "fd00::/64"}},
		"two of a family": {
			list: "10.244.0.0/16,10.245.0.0/16", reason: `"10.244.0.0/16,10.245.0.0/16": more than one IPv4 range`,
		},
		"an address":                     {list: "10.244.0.0", reason: `"10.244.0.0" is not a CIDR such as 10.244.0.0/16`},
		"a prefix longer than addresses": {list: "10.244.0.0/33", reason: `"10.244.0.0/33" is not a CIDR such as 10.244.0.0/16`},
		"a trailing comma":               {list: "10.244.0.0/16,", reason: `"" is not a CIDR such as 10.244.0.0/16`},
		"an IPv4 range in IPv6 form": {
			list: "::ffff:10.244.0.0/112", reason: "::ffff:10.244.0.0/112 is an IPv4 range in IPv6 form; write it as IPv4",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			settings, fieldErrors := Resolve(&Configuration{ClusterCIDR: test.list})
			if test.reason != "" {
				want := []FieldError{{"clusterCIDR", test.reason}}
				if diff := cmp.Diff(want, fieldErrors); diff != "" {
					t.Errorf("field errors (-want +got):\n%s", diff)
				}
				return
			}
			for _, prefix := range settings.LocalTraffic.Prefixes {
				got = append(got, prefix.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" || len(fieldErrors) > 0 {
				t.Errorf("field errors %v; (-want +got):\n%s", fieldErrors, diff)
			}
		})
	}
}

func TestImpossibleValuesAreRejected(t *testing.T) {
	tests := map[string]struct{ field, text string }{
		"a negative burst":            {"clientConnection.burst", "-1"},
		"not a number of requests":    {"clientConnection.qps", "NaN"},
		"infinitely many":             {"clientConnection.qps", "Inf"},
		"a negative maximum":          {"conntrack.maxPerCore", "-1"},
		"a negative minimum":          {"conntrack.min", "-1"},
		"a negative timeout":          {"conntrack.tcpEstablishedTimeout", "-1s"},
		"a timeout below a second":    {"conntrack.udpTimeout", "999ms"},
		"a timeout beyond the kernel": {"conntrack.udpStreamTimeout", "700000h"},
		"a negative sync period":      {"nftables.syncPeriod", "-1s"},
		"a score that is too low":     {"oomScoreAdj", "-1001"},
		"an unknown detectLocalMode":  {"detectLocalMode", "clustercidr"},
		"an unknown format":           {"logging.format", "xml"},
		"a host name":                 {"healthzBindAddress", "localhost:80"},
		"no address":                  {"metricsBindAddress", ":"},
		"an address for primary":      {"nodePortAddresses", "192.0.2.1"},
		"a name as bind address":      {"bindAddress", "eth0"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := &Configuration{}
			if err := Set(c, test.field, test.text); err != nil {
				t.Fatal(err)
			}
			_, fieldErrors := Resolve(c)
			if len(fieldErrors) != 1 || fieldErrors[0].Field != test.field || fieldErrors[0].Reason == "" {
				t.Errorf("field errors %v, want one of %s", fieldErrors, test.field)
			}
		})
	}
}

func TestEdgeValuesAreValid(t *testing.T) {
	for field, text := range map[string]string{
		"oomScoreAdj": "-1000", "conntrack.udpTimeout": "1s", "conntrack.maxPerCore": "0", "clientConnection.qps": "-1",
		"healthzBindAddress": ":0", "nftables.syncPeriod": "1ms", "nodePortAddresses": " primary ",
	} {
		c := &Configuration{}
		if err := Set(c, field, text); err != nil {
			t.Fatal(err)
		}
		if _, fieldErrors := Resolve(c); len(fieldErrors) > 0 {
			t.Errorf("%s %q: %v", field, text, fieldErrors)
		}
	}
	if got := (&checker{}).notNegative("x", math.MaxInt32); got != math.MaxInt32 {
		t.Errorf("notNegative(MaxInt32) = %d", got)
	}
}

func TestTheBindAddressIsTheNodesAddress(t *testing.T) {
	for text, want := range map[string]string{
		"": "invalid IP", "0.0.0.0": "invalid IP", "::": "invalid IP", "127.0.0.1": "invalid IP", "::1": "invalid IP",
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::1",
	} {
		settings, fieldErrors := Resolve(&Configuration{BindAddress: text})
		if got := settings.NodeAddress.String(); got != want || len(fieldErrors) > 0 {
			t.Errorf("%q: %s, want %s; field errors %v", text, got, want, fieldErrors)
		}
	}
}

func TestResolvingTwiceIsResolvingOnce(t *testing.T) {
	c := &Configuration{BindAddress: "::", HealthzBindAddress: "::1"}
	first, _ := Resolve(c)
	second, fieldErrors := Resolve(c)
	if diff := cmp.Diff(first, second, equateValues); diff != "" || len(fieldErrors) > 0 {
		t.Errorf("field errors %v; (-first +second):\n%s", fieldErrors, diff)
	}
	if first.HealthzBindAddress != "[::1]:10256" || first.MetricsBindAddress != "[::1]:10249" {
		t.Errorf("the servers listen on %s and %s", first.HealthzBindAddress, first.MetricsBindAddress)
	}
}
