//go:build linux

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

const webElement = "10.96.0.10 . tcp . 80 . fd00:0 : 10.244.1.5 . 8080"

func TestRunProgramsTheKernelAndKeepsTheRules(t *testing.T) {
	namespace := netns.New(t)
	d := startDaemon(t, namespace, "--manifests", stateFolder)

	if got := listRules(namespace); !strings.Contains(got, webElement) {
		t.Errorf("the kernel lacks %q:\n%s", webElement, got)
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		if status, body := d.get(t, "127.0.0.1:10256", path); status != http.StatusOK {
			t.Errorf("%s: status %d, %s", path, status, body)
		}
	}
	if _, body := d.get(t, "127.0.0.1:10256", "/healthz"); strings.Contains(body, "shop") || !strings.Contains(body, `"refusedTotal": 1`) {
		t.Errorf("/healthz names the invalid Service, or does not count it:\n%s", body)
	}
	const named = `"file":"refused.yaml","kind":"Service","namespace":"shop","name":"refused"`
	if _, body := d.get(t, "127.0.0.1:10249", "/findings?code=Invalid"); !strings.Contains(body, named) {
		t.Errorf("/findings does not name the invalid Service:\n%s", body)
	}
	_, metrics := d.get(t, "127.0.0.1:10249", "/metrics")
	for _, line := range []string{
		`vicinity_findings{reason="Invalid"} 1`, `kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv4"} `,
		`vicinity_nft_elements_written_total{ip_family="IPv4",operation="add"} `,
		`vicinity_service_port_decisions{ip_family="IPv4",`,
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("/metrics lacks %q", line)
		}
	}

	result := d.stop(t)
	if result.status != 0 || !strings.Contains(result.stderr, "the rules stay in the kernel") {
		t.Errorf("the daemon exited with %+v, want status 0 and a message about the rules", result)
	}
	if got := listRules(namespace); !strings.Contains(got, webElement) {
		t.Errorf("the rules were removed with the daemon:\n%s", got)
	}
}

func TestRunFollowsTheFolder(t *testing.T) {
	namespace, dir := netns.New(t), manifestsCopy(t)
	d := startDaemon(t, namespace, "--manifests", dir, "--log-format", "json", "--log-level", "debug")
	file := filepath.Join(dir, "shop.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rewrite := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	rewrite(strings.ReplaceAll(string(text), "10.244.1.5", "10.244.1.6"))
	wait.Until(t, "the new endpoint is in the kernel", func() bool {
		return strings.Contains(listRules(namespace), ": 10.244.1.6 . 8080")
	})
	rewrite("{broken")
	wait.Until(t, "the broken file is reported", func() bool {
		_, body := d.get(t, "127.0.0.1:10249", "/metrics")
		return strings.Contains(body, `vicinity_findings{reason="Invalid"} 2`)
	})
	if got := listRules(namespace); !strings.Contains(got, ": 10.244.1.6 . 8080") {
		t.Errorf("the last known good version is no longer active:\n%s", got)
	}
	rewrite(string(text))
	wait.Until(t, "the old endpoint is back", func() bool { return strings.Contains(listRules(namespace), webElement) })

	stderr := d.stop(t).stderr
	for _, part := range []string{
		`"msg":"invalid object ignored; its last known good version, if any, stays active"`, `"msg":"resolved"`, `"msg":"synced"`,
	} {
		if !strings.Contains(stderr, part) {
			t.Errorf("the log lacks %s:\n%s", part, stderr)
		}
	}
}

func TestRunRepairsWhatOthersChange(t *testing.T) {
	namespace := netns.New(t)
	d := startDaemon(t, namespace, "--manifests", stateFolder, "--own-tables", "never")

	namespace.NFT("flush", "ruleset")
	wait.Until(t, "the rules are back", func() bool { return strings.Contains(listRules(namespace), webElement) })

	const detected = `vicinity_nft_external_changes_total{ip_family="IPv4",stage="detected"} 1`
	if _, body := d.get(t, "127.0.0.1:10249", "/metrics"); !strings.Contains(body, detected) {
		t.Error("the change is not counted")
	}
	stderr := d.stop(t).stderr
	for _, part := range []string{"process=nft", `families="[IPv4 IPv6]"`} {
		if !strings.Contains(stderr, part) {
			t.Errorf("the log lacks %s:\n%s", part, stderr)
		}
	}
}

func TestCleanupRemovesOurTablesAndNothingElse(t *testing.T) {
	namespace := netns.New(t)
	namespace.NFT("add table ip mine")
	startDaemon(t, namespace, "--manifests", stateFolder).stop(t)

	for _, want := range []outcome{
		{stdout: "removed the IPv4 table \"vicinity\"\nremoved the IPv6 table \"vicinity\"\n"},
		{stdout: "nothing to remove\n"},
	} {
		var got outcome
		namespace.Do(func() { got = proxyCommand(t, "cleanup") })
		if got != want {
			t.Errorf("cleanup: got %+v, want %+v", got, want)
		}
	}
	if got := namespace.NFT("list", "tables"); got != "table ip mine\n" {
		t.Errorf("the namespace has %q, want only the other table", got)
	}
}

func TestRunEndsIfTheFolderCannotBeRead(t *testing.T) {
	var got outcome
	netns.New(t).Do(func() {
		got = proxyCommand(t, "run", "--node", "node-a", "--log-level", "error", "--manifests", filepath.Join(t.TempDir(), "missing"))
	})
	if got.status != 1 || !strings.HasPrefix(got.stderr, "proxy: load manifests: ") || strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("got %+v, want status 1 and one line", got)
	}
}
