package policy

import "testing"

func TestWhoHandlesAService(t *testing.T) {
	none, empty, other := map[string]string(nil), map[string]string{ServiceProxyNameLabel: ""}, map[string]string{ServiceProxyNameLabel: "x"}
	for name, test := range map[string]struct {
		labels map[string]string
		proxy  string
		want   bool
	}{
		"no label is for the proxy without a name":             {none, "", true},
		"no label is not for one with a name":                  {none, "x", false},
		"an empty label names no proxy":                        {empty, "", false},
		"an empty label is not for one with a name either":     {empty, "x", false},
		"a name is for the proxy that has it":                  {other, "x", true},
		"a name is not for another":                            {other, "y", false},
		"a name is not for the proxy that has none of its own": {other, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsHandledBy(test.labels, test.proxy); got != test.want {
				t.Errorf("IsHandledBy(%v, %q) = %v", test.labels, test.proxy, got)
			}
		})
	}
}

// TestWhichModeCounts has the cases of hintsEnabled in k8s.io/endpointslice/utils.go.
func TestWhichModeCounts(t *testing.T) {
	const mode, hints = TopologyModeAnnotation, TopologyAwareHintsAnnotation
	for name, test := range map[string]struct {
		annotations map[string]string
		want        ModeSetting
		isAuto      bool
	}{
		"without an annotation nothing does":    {map[string]string{"a": "Auto"}, ModeSetting{}, false},
		"Auto":                                  {map[string]string{mode: "Auto"}, ModeSetting{mode, "Auto"}, true},
		"auto":                                  {map[string]string{mode: "auto"}, ModeSetting{mode, "auto"}, true},
		"AUTO is Disabled":                      {map[string]string{mode: "AUTO"}, ModeSetting{mode, "AUTO"}, false},
		"a space makes it Disabled":             {map[string]string{mode: "Auto "}, ModeSetting{mode, "Auto "}, false},
		"an empty value is Disabled":            {map[string]string{mode: ""}, ModeSetting{mode, ""}, false},
		"the deprecated annotation counts":      {map[string]string{hints: "auto"}, ModeSetting{hints, "auto"}, true},
		"the deprecated annotation comes first": {map[string]string{mode: "Auto", hints: "Disabled"}, ModeSetting{hints, "Disabled"}, false},
		"also if it is the one that says Auto":  {map[string]string{mode: "Disabled", hints: "Auto"}, ModeSetting{hints, "Auto"}, true},
		"others' modes are Disabled":            {map[string]string{mode: ModeBalanced}, ModeSetting{mode, ModeBalanced}, false},
		"even an empty one comes first":         {map[string]string{mode: "Auto", hints: ""}, ModeSetting{hints, ""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := ModeOf(test.annotations)
			if got != test.want || got.IsAuto() != test.isAuto {
				t.Errorf("ModeOf(%v) = %v, auto %v", test.annotations, got, got.IsAuto())
			}
		})
	}
}
