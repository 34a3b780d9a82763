package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		annotations          map[string]string
		externalTrafficLocal bool
		want                 parsed
	}{
		"no annotations": {
			want: parsed{},
		},
		"the mode Auto: hints apply": {
			annotations: map[string]string{"service.kubernetes.io/topology-mode": "Auto"},
			want:        parsed{HintsSetting: "service.kubernetes.io/topology-mode: Auto"},
		},
		"other annotations": {
			annotations: map[string]string{"example.com/topology-mode": "Auto"},
			want:        parsed{},
		},
		"externalTrafficPolicy: Local without keys": {
			annotations:          map[string]string{"example.com/note": "*"},
			externalTrafficLocal: true,
			want:                 parsed{},
		},
		"valid keys, in their order": {
			annotations: map[string]string{TopologyKeysAnnotation: "kubernetes.io/hostname, topology.kubernetes.io/zone, *"},
			want:        parsed{Keys: []Key{Hostname, Zone, AnyNode}},
		},
		"one invalid key: all keys are ignored": {
			annotations: map[string]string{TopologyKeysAnnotation: "topology.kubernetes.io/zone, *, example.com/rack"},
			want: parsed{Ignored: ignoredOf(`entry 2 "*" matches every endpoint, so the keys after it would never be tried; ` +
				`move it to the end`)},
		},
		"an empty annotation": {
			annotations: map[string]string{TopologyKeysAnnotation: ""},
			want: parsed{Ignored: ignoredOf(`the list of topology keys is empty; list node label keys, the most preferred first, ` +
				`such as "topology.kubernetes.io/zone, *", or remove the annotation`)},
		},
		"keys conflict with externalTrafficPolicy: Local": {
			annotations:          map[string]string{TopologyKeysAnnotation: "topology.kubernetes.io/zone"},
			externalTrafficLocal: true,
			want: parsed{Ignored: ignoredOf("topology keys may not be used with externalTrafficPolicy: Local; " +
				"set externalTrafficPolicy to Cluster, or remove the annotation")},
		},
		"* alone does not conflict with externalTrafficPolicy: Local": {
			annotations:          map[string]string{TopologyKeysAnnotation: " * "},
			externalTrafficLocal: true,
			want:                 parsed{Keys: []Key{AnyNode}},
		},
		"* after another key conflicts with externalTrafficPolicy: Local": {
			annotations:          map[string]string{TopologyKeysAnnotation: "kubernetes.io/hostname, *"},
			externalTrafficLocal: true,
			want:                 parsed{Ignored: ignoredOf("topology keys " + LocalConflict + "; " + LocalRemedy)},
		},
		"invalid keys: the conflict is not reported": {
			annotations:          map[string]string{TopologyKeysAnnotation: "*, *"},
			externalTrafficLocal: true,
			want: parsed{Ignored: ignoredOf(`entry 1 "*" matches every endpoint, so the keys after it would never be tried; move it to the end. ` +
				`entry 2 "*" is the same key as entry 1; list each key once`)},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := parse(Input{Annotations: test.annotations, ExternalTrafficLocal: test.externalTrafficLocal})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Parse(%q) differs (-want +got):\n%s", test.annotations, diff)
			}
		})
	}
}

func TestNeedsNode(t *testing.T) {
	for key, want := range map[Key]bool{
		AnyNode: false, Hostname: false, Zone: false, Region: true, "failure-domain.beta.kubernetes.io/zone": true, "example.com/rack": true,
	} {
		if got := key.NeedsNode(); got != want {
			t.Errorf("%s needs a Node: %v, want %v", key, got, want)
		}
	}
}
