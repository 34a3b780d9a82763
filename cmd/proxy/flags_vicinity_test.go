package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
)

const (
	kubeProxyDocument = "apiVersion: " + config.APIVersion + "\nkind: KubeProxyConfiguration\n"
	vicinityDocument  = "apiVersion: " + config.VicinityAPIVersion + "\nkind: " + config.VicinityKind + "\n"
)

// runFlagsWith returns the flags of the daemon with a file and some arguments.
func runFlagsWith(t *testing.T, file string, args ...string) (*runFlags, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.conf")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	set, flags := pflag.NewFlagSet("run", pflag.ContinueOnError), &runFlags{}
	flags.register(set)
	if err := set.Parse(append([]string{"--config", path, "--node", "node-a"}, args...)); err != nil {
		t.Fatal(err)
	}
	if err := flags.read(); err != nil {
		return nil, err
	}
	return flags, flags.Validate()
}

// otherValues are values of our own settings that differ from the default.
var otherValues = map[string]string{
	"clusterDomain": "cluster.example", "defaultMaxLoad": `"150%"`, "defaultDemandSource": "measured",
	"dnsBindAddress": "127.0.0.1:10053", "dnsEndpointPodNames": "true",
	"dnsTTL": "7s", "logLevel": "warn", "manifests": "/state", "master": "https://192.0.2.1",
	"nodeTopologySource": "nodes", "ownTables": "never",
	"proxyService": "shop/proxies", "secureMetricsBindAddress": "0.0.0.0:10449", "serviceProxyName": "other",
	"topologyNamespace": "elsewhere", "nodeCondition": "true", "unreachableNodeMode": "observe", "xdsBindAddress": "0.0.0.0:18000",
	"trafficAccounting": "services=7,key=example.com/rack",
}

// TestEveryVicinityFlagIsAlsoAField: every flag of the daemon that is a setting can be in the file, has an effect
// there, and is overridden by the flag on the command line.
func TestEveryVicinityFlagIsAlsoAField(t *testing.T) {
	for field, flag := range vicinityFlags() {
		value, known := otherValues[field]
		if !known {
			t.Errorf("otherValues has no value for %s, the field of --%s", field, flag.Name)
			continue
		}
		file := kubeProxyDocument + "---\n" + vicinityDocument + field + ": " + value + "\n"
		var args []string
		if field != "manifests" && field != "master" {
			args = []string{"--master", "https://192.0.2.9"}
		}
		flags, err := runFlagsWith(t, file, args...)
		if err != nil {
			t.Errorf("%s: %v", field, err)
			continue
		}
		if got, want := flags.flagSet.Lookup(flag.Name).Value.String(), strings.Trim(value, `"`); got != want {
			t.Errorf("%s: --%s is %q, want %q", field, flag.Name, got, want)
		}
		flags, err = runFlagsWith(t, file, append(args, "--"+flag.Name+"="+flag.DefValue)...)
		if flags == nil {
			t.Errorf("%s, with the flag: %v", field, err)
		} else if got := flags.flagSet.Lookup(flag.Name).Value.String(); got != flag.DefValue {
			t.Errorf("%s: --%s is %q, although the command line sets the default", field, flag.Name, got)
		}
	}
	for field := range otherValues {
		if vicinityFlags()[field] == nil {
			t.Errorf("no flag has the field %s", field)
		}
	}
}

// TestFlagsOverrideTheSourceInTheFile: the command line overrides the source of the state in a file.
func TestFlagsOverrideTheSourceInTheFile(t *testing.T) {
	for _, args := range [][]string{{"--manifests", "/other"}, {"--kubeconfig", "/k"}, {"--master", "https://192.0.2.2"}} {
		flags, err := runFlagsWith(t, vicinityDocument+"manifests: /state\n", args...)
		if err != nil || flags.manifests == "/state" {
			t.Errorf("%q: manifests of the file are used: %v, error %v", args, flags, err)
		}
	}
	flags, err := runFlagsWith(t, vicinityDocument+"logLevel: debug\nmanifests: /state\n", "-v", "2")
	if err != nil || flags.logLevel != "" {
		t.Errorf("-v does not override the log level of the file, or failed: %v", err)
	}
}

// TestInvalidVicinityDocumentIsRejected checks that the message has every error, and a suggestion for an unknown field.
func TestInvalidVicinityDocumentIsRejected(t *testing.T) {
	for title, test := range map[string]struct{ text, want string }{
		"a typo":                 {"dnsTtl: 5s\n", "dnsTtl: unknown field; did you mean dnsTTL?"},
		"the name of the flag":   {"default-max-load: 120%\n", "default-max-load: unknown field; did you mean defaultMaxLoad?"},
		"a former name":          {"account: totals\n", "account: unknown field; did you mean trafficAccounting?"},
		"another former name":    {"unreachableNodes: watch\n", "unreachableNodes: unknown field; did you mean unreachableNodeMode?"},
		"a field of kube-proxy":  {"clusterCIDR: 10.0.0.0/8\n", "clusterCIDR: unknown field; it belongs in the"},
		"no similar name":        {"frobnicate: x\n", "frobnicate: unknown field"},
		"a step":                 {"check: true\n", "check: unknown field"},
		"a number":               {"defaultMaxLoad: 120\n", "defaultMaxLoad: must be a string, not 120; quote it"},
		"a string for a boolean": {"dnsEndpointPodNames: \"yes\"\n", "dnsEndpointPodNames: must be true or false"},
		"a field twice":          {"dnsTTL: 5s\ndnsTTL: 6s\n", "dnsTTL: duplicate field"},
		"an invalid value":       {"dnsTTL: 5ms\n", "dnsTTL 5ms: must be whole seconds, at most 1h0m0s"},
		"not a duration":         {"dnsTTL: soon\n", `dnsTTL: time: invalid duration "soon"`},
		"two values": {"ownTables: always\nlogLevel: loud\n",
			"logLevel \"loud\" must be one of: debug, info, warn, error\nownTables"},
	} {
		_, err := runFlagsWith(t, kubeProxyDocument+"---\n"+vicinityDocument+test.text)
		if text := fmt.Sprint(err); !strings.Contains(text, "of kind VicinityProxyConfiguration: ") || !strings.Contains(text, test.want) {
			t.Errorf("%s: got %v, want %s", title, err, test.want)
		}
	}
}

// TestVicinitySettingsAreShownAndWritten: what is written can be read again.
func TestVicinitySettingsAreShownAndWritten(t *testing.T) {
	flags, err := runFlagsWith(t, vicinityDocument+"dnsTTL: 7s\ndnsEndpointPodNames: true\nmaster: https://192.0.2.1\n",
		"--default-max-load", "150%")
	if err != nil {
		t.Fatal(err)
	}
	configz, _ := flags.options().ConfigzData["proxy.config.vicinity.dev"].(map[string]any)
	isShown := configz["dnsTTL"] == "7s" && configz["dnsEndpointPodNames"] == true && configz["defaultMaxLoad"] == "150%"
	if !isShown || len(configz) != len(otherValues)+2 {
		t.Errorf("/configz shows %v", configz)
	}
	if flagz := flags.options().Flags; flagz["dns-ttl"] != "7s" {
		t.Errorf("/flagz shows %q", flagz["dns-ttl"])
	}
	path := filepath.Join(t.TempDir(), "written.conf")
	if err := config.Write(path, flags.configuration, vicinitySettings(), flags.vicinityValues(true)); err != nil {
		t.Fatal(err)
	}
	written, err := config.Read(path, vicinitySettings())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for field, value := range written.VicinityFields {
		got = append(got, field+"="+value)
	}
	slices.Sort(got)
	if want := "defaultMaxLoad=150% dnsEndpointPodNames=true dnsTTL=7s master=https://192.0.2.1"; strings.Join(got, " ") != want {
		t.Errorf("the written file has %q, want %s", got, want)
	}
}

// TestTheManifestsConfigurationIsRead covers the file as it is, the file without Vicinity's own settings, and the file
// with the settings in its comments enabled.
func TestTheManifestsConfigurationIsRead(t *testing.T) {
	text, err := os.ReadFile("../../manifests/configmap.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var configMap struct{ Data map[string]string }
	if err := yaml.Unmarshal(text, &configMap); err != nil {
		t.Fatal(err)
	}
	file, comments := configMap.Data["config.conf"], regexp.MustCompile(`(?m)^# ([A-Za-z]+: \S+)$`)
	for text, want := range map[string]int{file: 0, comments.ReplaceAllString(file, "$1"): len(comments.FindAllString(file, -1))} {
		flags, err := runFlagsWith(t, text)
		if err != nil {
			t.Fatal(err)
		}
		if len(flags.file.VicinityFields) != want {
			t.Errorf("the file has %v as settings of our own, want %d of them", flags.file.VicinityFields, want)
		}
	}
	if !comments.MatchString(file) {
		t.Error("the file has no setting of our own as a comment")
	}
}
