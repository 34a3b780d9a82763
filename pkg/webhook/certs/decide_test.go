package certs

import (
	"crypto/tls"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	testTime     = time.Unix(1_800_000_000, 0)
	day          = 24 * time.Hour
	testSettings = Settings{Names: ServiceNames("webhook", "system"), CA: 90 * day, Leaf: 30 * day, TrustDelay: time.Minute}
)

// newPair returns a CA and a certificate of it, both issued at a time, with the lifetimes of testSettings.
func newPair(t *testing.T, at time.Time) (*authority, *tls.Certificate) {
	t.Helper()
	ca, err := newAuthority(at, testSettings.CA)
	must(t, err)
	leaf, err := ca.issue(at, testSettings.Leaf, testSettings.Names)
	must(t, err)
	return ca, leaf
}

// trusting returns configurations that trust some CAs.
func trusting(trusted bundle) []configuration {
	return []configuration{{resource: "one", bundles: []string{string(trusted.encode())}}}
}

func TestDecide(t *testing.T) {
	old, oldLeaf := newPair(t, testTime.Add(-40*day))
	ca, leaf := newPair(t, testTime)
	rotating := content{trusted: bundle{ca.Certificate, old.Certificate}, signer: ca, leaf: oldLeaf}
	rotated := content{trusted: rotating.trusted, signer: ca, leaf: leaf}
	settled := content{trusted: bundle{ca.Certificate}, signer: ca, leaf: leaf}
	previousCA, previousLeaf := newPair(t, testTime.Add(-20*day))
	early := content{trusted: bundle{ca.Certificate, previousCA.Certificate}, signer: ca, leaf: previousLeaf}

	for name, c := range map[string]struct {
		view   view
		want   []action
		reason string
		until  time.Time // of the last step
	}{
		"there is no Secret": {view: view{now: testTime}, want: []action{createSecret}, reason: "the Secret does not exist"},
		"the Secret is empty": {
			view: view{now: testTime, content: &content{}, configurations: trusting(bundle{old.Certificate})},
			want: []action{addCA}, reason: "no CA with its key",
		},
		"the Secret has a CA without its key": {
			view: view{now: testTime, content: &content{trusted: settled.trusted, leaf: leaf}, configurations: trusting(settled.trusted)},
			want: []action{addCA}, reason: "no CA with its key",
		},
		"the Secret has a CA without a certificate": {
			view: view{now: testTime, content: &content{trusted: settled.trusted, signer: ca}, configurations: trusting(settled.trusted)},
			want: []action{issueLeaf}, reason: "no certificate with its key",
		},
		"the Secret has the certificate of another CA": {
			view: view{now: testTime, content: &content{trusted: settled.trusted, signer: ca, leaf: previousLeaf}, configurations: trusting(nil)},
			want: []action{patchBundle, issueLeaf}, reason: "the certificate cannot be used",
		},
		"nothing is due": {
			view: view{now: testTime, content: &settled, configurations: trusting(settled.trusted)},
			want: []action{pause}, reason: "nothing is due", until: testTime.Add(20 * day),
		},
		"a caBundle is empty": {
			view: view{now: testTime, content: &settled, configurations: trusting(nil)},
			want: []action{patchBundle, pause}, reason: "nothing is due", until: testTime.Add(20 * day),
		},
		"a configuration that cannot be read is not written": {
			view: view{now: testTime, content: &settled, configurations: []configuration{{resource: "one", unknown: true}}},
			want: []action{pause}, reason: "nothing is due", until: testTime.Add(20 * day),
		},
		"the CA is due, and a caBundle is also repaired": {
			view: view{now: testTime.Add(61 * day), content: &settled, configurations: trusting(nil)},
			want: []action{patchBundle, addCA}, reason: "the CA expires at",
		},
		"the CA has expired": {
			view: view{now: testTime.Add(91 * day), content: &settled, configurations: trusting(settled.trusted)},
			want: []action{addCA}, reason: "the CA cannot be used: expired at",
		},
		"a new CA is not trusted": {
			view: view{now: testTime, content: &early, configurations: trusting(bundle{previousCA.Certificate})},
			want: []action{patchBundle, pause}, reason: "an older CA issued the certificate; API servers may not",
			until: testTime.Add(10*day + time.Second),
		},
		"a new CA is trusted, but has not settled": {
			view: view{now: testTime.Add(59 * time.Second), content: &early, configurations: trusting(early.trusted), trustedSince: testTime},
			want: []action{pause}, reason: "an older CA issued the certificate; API servers may not", until: testTime.Add(time.Minute),
		},
		"a new CA has settled": {
			view: view{now: testTime.Add(time.Minute), content: &early, configurations: trusting(early.trusted), trustedSince: testTime},
			want: []action{issueLeaf}, reason: "an older CA issued the certificate",
		},
		"no API server calls, so no CA needs to settle": {
			view: view{now: testTime, content: &early}, want: []action{issueLeaf}, reason: "an older CA issued the certificate",
		},
		"the certificate expires before the new CA has settled": {
			view: view{now: testTime, content: &rotating, configurations: trusting(rotating.trusted), trustedSince: testTime},
			want: []action{issueLeaf}, reason: "the certificate cannot be used",
		},
		"a certificate is due": {
			view: view{
				now: testTime.Add(20 * day), content: &settled, configurations: trusting(settled.trusted), trustedSince: testTime,
			},
			want: []action{issueLeaf}, reason: "the certificate expires at",
		},
		"an older CA may still be needed": {
			view: view{now: testTime.Add(10 * day), content: &rotated, configurations: trusting(rotated.trusted)},
			want: []action{pause}, reason: "nothing is due", until: testTime.Add(20 * day),
		},
		"an older CA is not needed any more": {
			view: view{
				now:            testTime.Add(30*day + 3*time.Second),
				content:        &content{trusted: rotated.trusted, signer: ca, leaf: issueLeafAt(t, ca, testTime.Add(20*day))},
				configurations: trusting(rotated.trusted),
			},
			want: []action{dropOlderCAs}, reason: "all certificates of older CAs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			steps := c.view.decide(testSettings)
			var actions []action
			for _, step := range steps {
				actions = append(actions, step.action)
			}
			if diff := cmp.Diff(c.want, actions); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			last := steps[len(steps)-1]
			if !strings.Contains(last.reason, c.reason) {
				t.Errorf("reason %q, want it to contain %q", last.reason, c.reason)
			}
			if !last.until.Equal(c.until) {
				t.Errorf("until %s, want %s", last.until, c.until)
			}
		})
	}
}

func issueLeafAt(t *testing.T, ca *authority, at time.Time) *tls.Certificate {
	t.Helper()
	leaf, err := ca.issue(at, testSettings.Leaf, testSettings.Names)
	must(t, err)
	return leaf
}

func TestTrustObserve(t *testing.T) {
	old, _ := newPair(t, testTime)
	ca, leaf := newPair(t, testTime)
	current := &content{trusted: bundle{ca.Certificate, old.Certificate}, signer: ca, leaf: leaf}
	both, onlyOld := trusting(current.trusted), trusting(bundle{old.Certificate})
	initial := trust{ca.Certificate, testTime}
	later := testTime.Add(time.Second)
	for name, c := range map[string]struct {
		content        *content
		configurations []configuration
		want           time.Time
	}{
		"all still trust it":               {current, append(both, both...), testTime},
		"one does not":                     {current, append(both, onlyOld...), time.Time{}},
		"one cannot be read":               {current, append(both, configuration{unknown: true}), time.Time{}},
		"another CA signs":                 {&content{trusted: current.trusted, signer: old}, both, later},
		"there is no CA that signs":        {&content{trusted: current.trusted}, both, time.Time{}},
		"there is no Secret":               {nil, both, time.Time{}},
		"there is no configuration at all": {current, nil, testTime},
	} {
		t.Run(name, func(t *testing.T) {
			if got := initial.observe(later, c.content, c.configurations).since; !got.Equal(c.want) {
				t.Errorf("since %s, want %s", got, c.want)
			}
		})
	}
	if got := (trust{}).observe(later, current, both).since; !got.Equal(later) {
		t.Errorf("newly trusted since %s, want %s", got, later)
	}
}

func TestNewCAKeepsTheOldOneAndItsCertificate(t *testing.T) {
	old, leaf := newPair(t, testTime)
	now := testTime.Add(time.Hour)
	existing := &content{trusted: bundle{old.Certificate}, signer: old, leaf: leaf}
	next, err := view{now: now, content: existing}.contentAfter(addCA, testSettings)
	must(t, err)
	if len(next.trusted) != 2 || next.trusted[0] != next.signer.Certificate || !next.trusted[1].Equal(old.Certificate) || next.leaf != leaf {
		t.Errorf("%d CAs, want a new one that signs, then the old one, and the old certificate", len(next.trusted))
	}
	if want := now.Add(30*day + 2*time.Second); !next.olderValidUntil(testSettings).Equal(want) {
		t.Errorf("the old one is kept until %s, want %s", next.olderValidUntil(testSettings), want)
	}
	if last, err := (view{now: now.Add(31 * day), content: next}).contentAfter(dropOlderCAs, testSettings); err != nil ||
		len(last.trusted) != 1 {
		t.Errorf("%d CAs (%v), want the new one alone", len(last.trusted), err)
	}
	for name, broken := range map[string]*content{
		"no Secret": nil, "an empty Secret": {}, "another CA": {trusted: bundle{old.Certificate}, leaf: issueLeafAt(t, next.signer, now)},
	} {
		after, err := view{now: now, content: broken}.contentAfter(createSecret, testSettings)
		must(t, err)
		if _, err := (bundle{after.signer.Certificate}).verify(after.leaf, testSettings.Names[0], now); err != nil {
			t.Errorf("%s: the certificate is not of the new CA: %v", name, err)
		}
	}
}

func TestReadContentReportsErrorsWithoutKeys(t *testing.T) {
	ca, leaf := newPair(t, testTime)
	_, otherLeaf := newPair(t, testTime)
	good, err := (&content{trusted: bundle{ca.Certificate}, signer: ca, leaf: leaf}).data()
	must(t, err)
	other, err := (&content{trusted: bundle{ca.Certificate}, signer: ca, leaf: otherLeaf}).data()
	must(t, err)
	for name, c := range map[string]struct {
		key  string
		text []byte
		want string
	}{
		"a key of another certificate": {leafKeyEntry, other[leafKeyEntry], "tls.crt: tls: private key does not match public key"},
		"no key":                       {leafKeyEntry, nil, "tls.crt: tls: failed to find any PEM data in key input"},
		"garbage for a certificate":    {leafEntry, []byte("garbage"), "tls.crt: tls: failed to find any PEM data in certificate input"},
		"a key that matches no CA":     {authorityKeyEntry, good[leafKeyEntry], "ca.key: private key does not match any CA in ca.crt"},
		"garbage for a CA's key":       {authorityKeyEntry, []byte("garbage"), "ca.key: no PKCS #8 private key in PEM"},
		"a truncated key of a CA": {
			authorityKeyEntry, pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: []byte("cut")}), "ca.key: not a PKCS #8 private key",
		},
		"a certificate that is not a CA": {bundleEntry, good[leafEntry], "ca.crt: contains data other than CAs"},
		"a key among the CAs": {bundleEntry, slices.Concat(good[authorityKeyEntry], good[bundleEntry]),
			"ca.crt: contains data other than CAs"},
		"text after the CAs": {bundleEntry, slices.Concat(good[bundleEntry], []byte("behind")),
			"ca.crt: contains data other than CAs"},
	} {
		t.Run(name, func(t *testing.T) {
			data := maps.Clone(good)
			data[c.key] = c.text
			errs := strings.Join(readContent(data).errs, "; ")
			if !strings.Contains(errs, c.want) {
				t.Errorf("errors: %q, want %q", errs, c.want)
			}
			for _, key := range []string{authorityKeyEntry, leafKeyEntry} {
				if text := strings.Split(string(good[key]), "\n")[1]; strings.Contains(errs, text) {
					t.Errorf("the errors contain a key: %s", errs)
				}
			}
		})
	}
	if errs := readContent(good).errs; errs != nil {
		t.Errorf("errors of a valid Secret: %q", errs)
	}
}

func TestContentRoundTrip(t *testing.T) {
	old, _ := newPair(t, testTime)
	ca, leaf := newPair(t, testTime)
	written := &content{trusted: bundle{ca.Certificate, old.Certificate}, signer: ca, leaf: leaf}
	data, err := written.data()
	must(t, err)
	got := readContent(data)
	if len(got.errs) > 0 || string(got.trusted.encode()) != string(written.trusted.encode()) || !got.leaf.Leaf.Equal(leaf.Leaf) ||
		!got.signer.Certificate.Equal(ca.Certificate) {
		t.Errorf("got %+v", got)
	}
}

func TestIssuedCertificateIsValidForServiceNames(t *testing.T) {
	ca, leaf := newPair(t, testTime)
	for _, name := range []string{"webhook.system.svc", "webhook.system", "webhook.system.svc.cluster.local"} {
		for _, at := range []time.Time{testTime.Add(-59 * time.Minute), testTime, testTime.Add(30*day - time.Second)} {
			if _, err := (bundle{ca.Certificate}).verify(leaf, name, at); err != nil {
				t.Errorf("%s at %s: %v", name, at, err)
			}
		}
	}
	if _, err := (bundle{ca.Certificate}).verify(leaf, "webhook.elsewhere.svc", testTime); err == nil {
		t.Error("the certificate is also valid for another name")
	}
}

func TestIssueRejectsInvalidName(t *testing.T) {
	settings := testSettings
	settings.Names = []string{"127.0.0.1"} // an address is not a DNS name
	if _, err := (view{now: testTime}).contentAfter(createSecret, settings); err == nil {
		t.Error("a certificate was issued that is not valid for its name")
	}
}
