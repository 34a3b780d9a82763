package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	someday    = time.Unix(1_800_000_000, 0)
	someDays   = 24 * time.Hour
	oneSetting = Settings{Names: ServiceNames("webhook", "system"), CA: 90 * someDays, Leaf: 30 * someDays, Settle: time.Minute}
)

// made is a CA of a day, and a certificate of it.
func made(t *testing.T, at time.Time) (*authority, *tls.Certificate) {
	t.Helper()
	ca, err := newAuthority(at, oneSetting.CA)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.issue(at, oneSetting.Leaf, oneSetting.Names)
	if err != nil {
		t.Fatal(err)
	}
	return ca, leaf
}

// actions are what the steps do.
func actions(steps []Step) []Action {
	var all []Action
	for _, step := range steps {
		all = append(all, step.Do)
	}
	return all
}

func TestTheNextStepIsDecided(t *testing.T) {
	old, oldLeaf := made(t, someday)
	ca, leaf := made(t, someday)
	rotating := Content{Trusted: bundle{ca.Certificate, old.Certificate}, Signer: ca, Leaf: oldLeaf, OlderUntil: someday.Add(30 * someDays)}
	settled := Content{Trusted: bundle{ca.Certificate}, Signer: ca, Leaf: leaf}
	serving := func(leaf *tls.Certificate, trusted bundle, since time.Time) Memory {
		memory := Memory{Served: leaf, ServedBy: trusted, trustedSince: map[fingerprint]time.Time{}}
		for _, certificate := range trusted {
			memory.trustedSince[fingerprintOf(certificate)] = since
		}
		return memory
	}
	trusting := func(trusted bundle) []Configuration {
		return []Configuration{{Name: "one", Bundles: [][]byte{trusted.encode()}}}
	}

	for name, c := range map[string]struct {
		now            time.Time
		content        *Content
		memory         Memory
		configurations []Configuration
		want           []Action
		reason         string
	}{
		"there is no Secret": {
			now: someday, want: []Action{CreateSecret}, reason: "there is none",
		},
		"the Secret is empty": {
			now: someday, content: &Content{}, want: []Action{AddCA}, reason: "no CA with its key",
		},
		"nothing is due": {
			now: someday, content: &settled, memory: serving(leaf, settled.Trusted, someday), configurations: trusting(settled.Trusted),
			want: []Action{Wait}, reason: "nothing is due",
		},
		"a caBundle is empty": {
			now: someday, content: &settled, memory: serving(leaf, settled.Trusted, someday), configurations: trusting(nil),
			want: []Action{PatchBundle, Wait}, reason: "nothing is due",
		},
		"a configuration that cannot be read is not written": {
			now: someday, content: &settled, memory: serving(leaf, settled.Trusted, someday),
			configurations: []Configuration{{Name: "one", Unknown: true}}, want: []Action{Wait}, reason: "nothing is due",
		},
		"the CA is due, and a caBundle is repaired all the same": {
			now: someday.Add(61 * someDays), content: &settled, configurations: trusting(nil),
			want: []Action{PatchBundle, AddCA}, reason: "the CA expires at",
		},
		"the CA has expired": {
			now: someday.Add(91 * someDays), content: &settled, configurations: trusting(settled.Trusted),
			want: []Action{AddCA}, reason: "the CA cannot be used: it expired at",
		},
		"a new CA is trusted, but has not settled": {
			now: someday.Add(59 * time.Second), content: &rotating, memory: serving(oldLeaf, rotating.Trusted, someday),
			configurations: trusting(rotating.Trusted), want: []Action{Wait}, reason: "of an older CA; API servers may not",
		},
		"a new CA has settled": {
			now: someday.Add(time.Minute), content: &rotating, memory: serving(oldLeaf, rotating.Trusted, someday),
			configurations: trusting(rotating.Trusted), want: []Action{IssueLeaf}, reason: "of an older CA",
		},
		"nobody calls, so no CA needs to settle": {
			now: someday, content: &rotating, memory: serving(oldLeaf, rotating.Trusted, someday),
			want: []Action{IssueLeaf}, reason: "of an older CA",
		},
		"the certificate expires before the new CA has settled": {
			now: someday.Add(31 * someDays), content: &rotating, memory: serving(oldLeaf, rotating.Trusted, someday.Add(31*someDays)),
			configurations: trusting(rotating.Trusted), want: []Action{IssueLeaf}, reason: "the certificate cannot be used",
		},
		"a certificate is due": {
			now: someday.Add(20 * someDays), content: &settled, memory: serving(leaf, settled.Trusted, someday),
			configurations: trusting(settled.Trusted), want: []Action{IssueLeaf}, reason: "the certificate expires at",
		},
		"an older CA may still be needed": {
			now: someday.Add(10 * someDays), memory: serving(leaf, rotating.Trusted, someday), configurations: trusting(rotating.Trusted),
			content: &Content{Trusted: rotating.Trusted, Signer: ca, Leaf: leaf, OlderUntil: someday.Add(11 * someDays)},
			want:    []Action{Wait}, reason: "nothing is due",
		},
		"an older CA is not needed any more": {
			now: someday.Add(12 * someDays), memory: serving(leaf, rotating.Trusted, someday), configurations: trusting(rotating.Trusted),
			content: &Content{Trusted: rotating.Trusted, Signer: ca, Leaf: leaf, OlderUntil: someday.Add(11 * someDays)},
			want:    []Action{DropOlder}, reason: "no certificate of an older CA",
		},
		"nobody knows until when an older CA is needed": {
			now: someday, content: &Content{Trusted: rotating.Trusted, Signer: ca, Leaf: leaf}, memory: serving(leaf, rotating.Trusted, someday),
			want: []Action{KeepOlder}, reason: "not known until when",
		},
		"an older CA is kept until the end of time": {
			now: someday, memory: serving(leaf, rotating.Trusted, someday),
			content: &Content{Trusted: rotating.Trusted, Signer: ca, Leaf: leaf, OlderUntil: someday.Add(10000 * someDays)},
			want:    []Action{KeepOlder}, reason: "not known until when",
		},
		"somebody has put in another CA, and nothing is patched before ours is back": {
			now: someday, content: &settled, memory: serving(oldLeaf, bundle{old.Certificate}, someday),
			configurations: trusting(bundle{old.Certificate}), want: []Action{KeepOlder}, reason: "does not trust what is served",
		},
		"somebody has taken everything out": {
			now: someday, content: &Content{}, memory: serving(oldLeaf, bundle{old.Certificate}, someday),
			configurations: trusting(bundle{old.Certificate}), want: []Action{AddCA}, reason: "no CA with its key",
		},
	} {
		t.Run(name, func(t *testing.T) {
			steps := Decide(c.now, c.content, c.memory, c.configurations, oneSetting)
			if diff := cmp.Diff(c.want, actions(steps)); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if last := steps[len(steps)-1]; !strings.Contains(last.Reason, c.reason) {
				t.Errorf("reason %q, want it to say %q", last.Reason, c.reason)
			}
		})
	}
}

// Who has seen a CA later than the replica that issued the certificate would otherwise wait for the next change of anything.
func TestACertificateOfOthersIsWaitedFor(t *testing.T) {
	old, oldLeaf := made(t, someday)
	ca, leaf := made(t, someday)
	both := bundle{ca.Certificate, old.Certificate}
	content := &Content{Trusted: both, Signer: ca, Leaf: leaf, OlderUntil: someday.Add(30 * someDays)}
	configurations := []Configuration{{Name: "one", Bundles: [][]byte{both.encode()}}}
	memory := Memory{Served: oldLeaf, ServedBy: both}.Observe(someday, content, configurations, oneSetting)
	if !memory.Served.Leaf.Equal(oldLeaf.Leaf) {
		t.Fatal("the certificate is served before its CA has settled")
	}
	steps := Decide(someday, content, memory, configurations, oneSetting)
	if want := someday.Add(oneSetting.Settle); len(steps) != 1 || steps[0].Do != Wait || !steps[0].Until.Equal(want) {
		t.Fatalf("steps %+v, want to wait until %s", steps, want)
	}
	memory = memory.Observe(steps[0].Until, content, configurations, oneSetting)
	if !memory.Served.Leaf.Equal(leaf.Leaf) {
		t.Error("the certificate is not served after that")
	}
}

func TestASecretThatIsDeletedGoesOnWithWhatIsServed(t *testing.T) {
	old, leaf := made(t, someday)
	memory := Memory{Served: leaf, ServedBy: bundle{old.Certificate}}
	next, err := Step{Do: CreateSecret}.Apply(someday.Add(time.Hour), nil, memory, oneSetting)
	if err != nil {
		t.Fatal(err)
	}
	if !next.Leaf.Leaf.Equal(leaf.Leaf) {
		t.Error("another certificate is in the new Secret")
	}
	if len(next.Trusted) != 2 || !next.Trusted.has(old.Certificate) || sameKey(old.Certificate, next.Signer.Key) {
		t.Errorf("%d CAs in the new Secret, want the old one and a new one, which signs", len(next.Trusted))
	}
	if want := someday.Add(time.Hour + 30*someDays + 2*time.Second); !next.OlderUntil.Equal(want) {
		t.Errorf("the old one is kept until %s, want %s", next.OlderUntil, want)
	}
}

func TestWhatIsServedIsNotMadeWorse(t *testing.T) {
	old, oldLeaf := made(t, someday)
	ca, leaf := made(t, someday)
	content := &Content{Trusted: bundle{ca.Certificate}, Signer: ca, Leaf: leaf}
	serving := Memory{Served: oldLeaf, ServedBy: bundle{old.Certificate}}
	trusting := func(trusted ...*x509.Certificate) []Configuration {
		return []Configuration{{Name: "one", Bundles: [][]byte{bundle(trusted).encode()}}}
	}
	for name, c := range map[string]struct {
		now            time.Time
		memory         Memory
		configurations []Configuration
		want           *tls.Certificate
	}{
		"nothing is served yet":                        {someday, Memory{}, trusting(old.Certificate), leaf},
		"the new CA is not trusted":                    {someday, serving, trusting(old.Certificate), oldLeaf},
		"the new CA has not settled":                   {someday, serving, trusting(old.Certificate, ca.Certificate), oldLeaf},
		"what is served is trusted by nobody any more": {someday, serving, trusting(ca.Certificate), leaf},
		"nobody calls":                                 {someday, serving, nil, leaf},
		"a configuration cannot be read":               {someday, serving, []Configuration{{Unknown: true}}, oldLeaf},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.memory.Observe(c.now, content, c.configurations, oneSetting)
			if !got.Served.Leaf.Equal(c.want.Leaf) {
				t.Error("the other certificate is served")
			}
		})
	}
	t.Run("the new CA has settled", func(t *testing.T) {
		both := trusting(old.Certificate, ca.Certificate)
		memory := serving.Observe(someday, content, both, oneSetting)
		if memory = memory.Observe(someday.Add(time.Minute), content, both, oneSetting); !memory.Served.Leaf.Equal(leaf.Leaf) {
			t.Error("the old certificate is served")
		}
	})
	t.Run("the new CA was not trusted for a moment", func(t *testing.T) {
		both := trusting(old.Certificate, ca.Certificate)
		memory := serving.Observe(someday, content, both, oneSetting)
		memory = memory.Observe(someday.Add(30*time.Second), content, trusting(old.Certificate), oneSetting)
		if memory = memory.Observe(someday.Add(time.Minute), content, both, oneSetting); !memory.Served.Leaf.Equal(oldLeaf.Leaf) {
			t.Error("the new certificate is served")
		}
	})
}

func TestNonsenseInTheSecretIsRefusedAndSaidWithoutAnyKey(t *testing.T) {
	ca, leaf := made(t, someday)
	_, otherLeaf := made(t, someday)
	good, err := (&Content{Trusted: bundle{ca.Certificate}, Signer: ca, Leaf: leaf}).data()
	if err != nil {
		t.Fatal(err)
	}
	other, err := (&Content{Trusted: bundle{ca.Certificate}, Signer: ca, Leaf: otherLeaf}).data()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key  string
		text []byte
		want string
	}{
		"a key of another certificate": {leafKeyKey, other[leafKeyKey], "tls.crt: tls: private key does not match public key"},
		"no key":                       {leafKeyKey, nil, "tls.crt: there is none, or no tls.key"},
		"garbage for a certificate":    {leafKey, []byte("garbage"), "tls.crt: tls: failed to find any PEM data in certificate input"},
		"the key of no CA":             {authorityKey, good[leafKeyKey], "ca.key: it is the key of no CA in ca.crt"},
		"garbage for a CA's key":       {authorityKey, []byte("garbage"), "ca.key: there is no PEM of a private key in PKCS #8"},
		"a CA's key that is cut off": {
			authorityKey, pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: []byte("cut")}), "ca.key: it is no private key in PKCS #8",
		},
		"a certificate that is no CA": {bundleKey, good[leafKey], "ca.crt: part 1: it is no CA"},
		"a key among the CAs": {
			bundleKey, append(good[authorityKey], good[bundleKey]...), `ca.crt: part 1: it is a "PRIVATE KEY", and no certificate`,
		},
		"text behind the CAs": {bundleKey, append([]byte(nil), append(good[bundleKey], "behind"...)...), "ca.crt: there is text that is not PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			data := maps.Clone(good)
			data[c.key] = c.text
			problems := strings.Join(ReadContent(data, nil).Problems, "; ")
			if !strings.Contains(problems, c.want) {
				t.Errorf("problems: %q, want %q", problems, c.want)
			}
			for _, key := range []string{authorityKey, leafKeyKey} {
				if text := strings.Split(string(good[key]), "\n")[1]; strings.Contains(problems, text) {
					t.Errorf("a key is among the problems: %s", problems)
				}
			}
		})
	}
	if problems := ReadContent(good, map[string]string{untilNotation: "tomorrow"}).Problems; len(problems) != 1 {
		t.Errorf("problems of a time that is none: %q", problems)
	}
	if problems := ReadContent(good, nil).Problems; problems != nil {
		t.Errorf("problems of a good Secret: %q", problems)
	}
}

func TestContentComesBackAsItWasWritten(t *testing.T) {
	old, _ := made(t, someday)
	ca, leaf := made(t, someday)
	content := &Content{Trusted: bundle{ca.Certificate, old.Certificate}, Signer: ca, Leaf: leaf, OlderUntil: someday}
	data, err := content.data()
	if err != nil {
		t.Fatal(err)
	}
	got := ReadContent(data, content.annotations())
	if len(got.Problems) > 0 || string(got.Trusted.encode()) != string(content.Trusted.encode()) || !got.Leaf.Leaf.Equal(leaf.Leaf) ||
		!got.Signer.Certificate.Equal(ca.Certificate) || !got.OlderUntil.Equal(someday) {
		t.Errorf("got %+v", got)
	}
}

func TestACertificateIsWhatAnAPIServerExpects(t *testing.T) {
	ca, leaf := made(t, someday)
	for _, name := range []string{"webhook.system.svc", "webhook.system", "webhook.system.svc.cluster.local"} {
		for _, at := range []time.Time{someday.Add(-59 * time.Minute), someday, someday.Add(30*someDays - time.Second)} {
			if _, err := (bundle{ca.Certificate}).verify(leaf, name, at); err != nil {
				t.Errorf("%s at %s: %v", name, at, err)
			}
		}
	}
	if _, err := (bundle{ca.Certificate}).verify(leaf, "webhook.elsewhere.svc", someday); err == nil {
		t.Error("it is good for another name too")
	}
}

func TestANameThatNoCertificateCanHaveIsRefused(t *testing.T) {
	settings := oneSetting
	settings.Names = []string{"127.0.0.1"} // an address is another kind of name
	if _, err := (Step{Do: CreateSecret}).Apply(someday, nil, Memory{}, settings); err == nil {
		t.Error("a certificate is issued that is never good enough")
	}
}

func TestSettingsThatCannotWorkAreRefused(t *testing.T) {
	good := Settings{Namespace: "system", Secret: "tls", Names: []string{"a.b.svc"}, Log: quietLog(), Observer: &observed{}}
	complete, err := good.complete()
	if err != nil || complete.CA != DefaultCA || complete.Leaf != DefaultLeaf || complete.Settle != DefaultSettle {
		t.Errorf("complete() = %+v, %v", complete, err)
	}
	for name, spoil := range map[string]func(*Settings){
		"no Secret":                            func(s *Settings) { s.Secret = "" },
		"no name":                              func(s *Settings) { s.Names = nil },
		"a name that is empty":                 func(s *Settings) { s.Names = []string{""} },
		"a CA too short for its certificates":  func(s *Settings) { s.CA, s.Leaf = 2*time.Hour, time.Hour },
		"a certificate of less than a second":  func(s *Settings) { s.Leaf = time.Millisecond },
		"a CA that has settled before it came": func(s *Settings) { s.Settle = -time.Second },
		"nobody to tell":                       func(s *Settings) { s.Observer = nil },
	} {
		t.Run(name, func(t *testing.T) {
			settings := good
			spoil(&settings)
			if _, err := settings.complete(); err == nil {
				t.Error("no error")
			}
		})
	}
}
