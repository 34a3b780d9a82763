package config

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// nonDefaults are values that are not defaults, for fields whose type does not imply valid values.
var nonDefaults = map[string]string{
	"bindAddress":        "192.0.2.1",
	"clusterCIDR":        "10.244.0.0/16",
	"detectLocalMode":    "NodeCIDR",
	"featureGates":       "AllowServiceExternalIPs=false",
	"healthzBindAddress": "127.0.0.1:1",
	"logging.format":     "json",
	"metricsBindAddress": "127.0.0.1:1",
	"mode":               "ipvs",
	"nodePortAddresses":  "192.0.2.0/24",
}

// equateValues compares the types in Settings.
var equateValues = cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})

// setNonDefault sets a field to another value than its default.
func setNonDefault(t *testing.T, c *Configuration, path string) {
	t.Helper()
	texts := []string{"true", "7", "7s"} // values of a bool, a number and a duration
	if text, ok := nonDefaults[path]; ok {
		texts = []string{text}
	}
	for _, text := range texts {
		if Set(c, path, text) == nil {
			return
		}
	}
	t.Fatalf("%s accepts none of %q", path, texts)
}

// TestEveryFieldHasAnEffectOrAReason checks all fields that kube-proxy's file can have. It fails if a new version adds
// a field.
func TestEveryFieldHasAnEffectOrAReason(t *testing.T) {
	for _, path := range fieldPaths(false) {
		if path == "apiVersion" || path == "kind" {
			continue // they identify the file
		}
		t.Run(path, func(t *testing.T) {
			isListedAsIgnored := slices.ContainsFunc(ignoredSettings, func(setting IgnoredSetting) bool { return setting.Field == path })
			if !IsSettable(path) {
				if !isListedAsIgnored {
					t.Error("it is neither read nor ignored")
				}
				return
			}
			before, after := Default(), Default()
			if mode, isLink := LinkModes[path]; isLink {
				before.DetectLocalMode, after.DetectLocalMode = "", "" // it has no effect alone
				if err := Set(after, "detectLocalMode", mode); err != nil {
					t.Fatal(err)
				}
				_, fieldErrors := Resolve(after)
				if len(fieldErrors) != 1 || fieldErrors[0].Field != path {
					t.Errorf("mode %s without it: field errors %v", mode, fieldErrors)
				}
			}
			setNonDefault(t, after, path)
			settingsBefore, _ := Resolve(before)
			settingsAfter, fieldErrors := Resolve(after)
			if len(fieldErrors) > 0 {
				t.Fatalf("field errors: %v", fieldErrors)
			}
			if isSame := cmp.Equal(settingsBefore, settingsAfter, equateValues); isSame != isListedAsIgnored {
				t.Errorf("no effect: %v; ignored: %v", isSame, isListedAsIgnored)
			}
		})
	}
}

func TestIgnoredSettingsAreNamedOnce(t *testing.T) {
	fields, flags := map[string]bool{}, map[string]bool{}
	known := fieldPaths(false)
	for _, setting := range IgnoredSettings() {
		switch {
		case setting.Reason == "":
			t.Errorf("%+v has no reason", setting)
		case setting.Field != "" && (fields[setting.Field] || !slices.Contains(known, setting.Field)):
			t.Errorf("field %s is listed twice, or unknown to kube-proxy", setting.Field)
		case setting.Flag != "" && flags[setting.Flag]:
			t.Errorf("flag %s is listed twice", setting.Flag)
		}
		fields[setting.Field], flags[setting.Flag] = true, true
	}
	for path := range removedFields {
		if slices.Contains(known, path) {
			t.Errorf("kube-proxy still has %s", path)
		}
	}
}

func TestEveryIgnoredSettingIsReportedUnlessItIsKubeProxysDefault(t *testing.T) {
	for _, setting := range ignoredSettings {
		if setting.Field == "" || !IsSettable(setting.Field) {
			continue
		}
		t.Run(setting.Field, func(t *testing.T) {
			c := &Configuration{}
			if setting.IsNonDefault(c) {
				t.Error("IsNonDefault is true for an empty file")
			}
			if setting.Default != "" {
				if err := Set(c, setting.Field, setting.Default); err != nil || setting.IsNonDefault(c) {
					t.Errorf("IsNonDefault is true for the default %q (%v)", setting.Default, err)
				}
			}
			if setting.Default == "true" {
				if err := Set(c, setting.Field, "false"); err != nil {
					t.Fatal(err)
				}
			} else {
				setNonDefault(t, c, setting.Field)
			}
			if !setting.IsNonDefault(c) {
				t.Errorf("IsNonDefault is false for %q", Get(c, setting.Field))
			}
		})
	}
}

func TestAnInvalidValueIsRejected(t *testing.T) {
	for path, text := range map[string]string{
		"conntrack.min": "many", "oomScoreAdj": "99999999999", "clientConnection.qps": "fast", "enableProfiling": "perhaps",
		"nftables.syncPeriod": "30", "conntrack.tcpCloseWaitTimeout": "an hour", "logging.verbosity": "-1", "featureGates": "AllBeta",
	} {
		if err := Set(Default(), path, text); err == nil {
			t.Errorf("%s accepts %q", path, text)
		}
	}
}

func TestAFieldReadsWhatItWrites(t *testing.T) {
	for path, text := range map[string]string{
		"clusterCIDR": "10.244.0.0/16", "mode": "ipvs", "conntrack.min": "7", "clientConnection.qps": "2.5", "enableProfiling": "true",
		"nftables.syncPeriod": "30s", "conntrack.tcpCloseWaitTimeout": "1h0m0s", "nodePortAddresses": "192.0.2.0/24,::/0",
		"logging.verbosity": "4", "featureGates": "AllBeta=false,WinDSR=true",
	} {
		c := &Configuration{}
		if err := Set(c, path, text); err != nil || Get(c, path) != text {
			t.Errorf("%s: set to %q, it is %q (%v)", path, text, Get(c, path), err)
		}
	}
}
