package policy

import "testing"

// TestAccountIsReadWhateverElseIsWrong.
func TestAccountIsReadWhateverElseIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		account     bool
		ignored     int
	}{
		"without":                 {nil, false, 0},
		"true":                    {map[string]string{AccountAnnotation: "true"}, true, 0},
		"false":                   {map[string]string{AccountAnnotation: "false"}, false, 0},
		"another word":            {map[string]string{AccountAnnotation: "True"}, false, 1},
		"nothing":                 {map[string]string{AccountAnnotation: ""}, false, 1},
		"beside keys":             {map[string]string{AccountAnnotation: "true", TopologyKeysAnnotation: "*"}, true, 0},
		"beside keys without use": {map[string]string{AccountAnnotation: "true", TopologyKeysAnnotation: ","}, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			topology, ignored := Parse(Words{Annotations: test.annotations})
			if topology.Account != test.account || len(ignored) != test.ignored {
				t.Errorf("account %v, ignored %v", topology.Account, ignored)
			}
		})
	}
}
