package policy

import "testing"

func TestIsHandledBy(t *testing.T) {
	noLabels, empty, named := map[string]string(nil), map[string]string{ServiceProxyNameLabel: ""},
		map[string]string{ServiceProxyNameLabel: "x"}
	for name, test := range map[string]struct {
		labels map[string]string
		proxy  string
		want   bool
	}{
		"no label, proxy without a name":       {noLabels, "", true},
		"no label, proxy with a name":          {noLabels, "x", false},
		"an empty label, proxy without a name": {empty, "", false},
		"an empty label, proxy with a name":    {empty, "x", false},
		"a label, proxy with that name":        {named, "x", true},
		"a label, proxy with another name":     {named, "y", false},
		"a label, proxy without a name":        {named, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsHandledBy(test.labels, test.proxy); got != test.want {
				t.Errorf("IsHandledBy(%v, %q) = %v, want the opposite", test.labels, test.proxy, got)
			}
		})
	}
}

// TestModeOf has the cases of hintsEnabled in k8s.io/endpointslice/utils.go.
func TestModeOf(t *testing.T) {
	const mode, hints = TopologyModeAnnotation, TopologyAwareHintsAnnotation
	for name, test := range map[string]struct {
		annotations map[string]string
		want        ModeSetting
		isAuto      bool
	}{
		"no annotation":                    {map[string]string{"a": "Auto"}, ModeSetting{}, false},
		"Auto":                             {map[string]string{mode: "Auto"}, ModeSetting{mode, "Auto"}, true},
		"auto":                             {map[string]string{mode: "auto"}, ModeSetting{mode, "auto"}, true},
		"AUTO is Disabled":                 {map[string]string{mode: "AUTO"}, ModeSetting{mode, "AUTO"}, false},
		"Auto with a space is Disabled":    {map[string]string{mode: "Auto "}, ModeSetting{mode, "Auto "}, false},
		"an empty value is Disabled":       {map[string]string{mode: ""}, ModeSetting{mode, ""}, false},
		"the deprecated annotation":        {map[string]string{hints: "auto"}, ModeSetting{hints, "auto"}, true},
		"the deprecated annotation wins":   {map[string]string{mode: "Auto", hints: "Disabled"}, ModeSetting{hints, "Disabled"}, false},
		"it also wins with Auto":           {map[string]string{mode: "Disabled", hints: "Auto"}, ModeSetting{hints, "Auto"}, true},
		"a mode with a domain is Disabled": {map[string]string{mode: ModeBalanced}, ModeSetting{mode, ModeBalanced}, false},
		"it also wins if it is empty":      {map[string]string{mode: "Auto", hints: ""}, ModeSetting{hints, ""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := ModeOf(test.annotations)
			if got != test.want || got.IsAuto() != test.isAuto {
				t.Errorf("ModeOf(%v) = %v, IsAuto %v", test.annotations, got, got.IsAuto())
			}
		})
	}
}
