package documents

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const example = `
Read ~make sure~, ~proxy explain~ with ~--node n~, and ~kubectl
apply -f x~.

## First

~~~
a picture
~~~

1. A step:

   ~~~sh
   # a comment
   kubectl get nodes |
     wc -l

   for node in a b; do
     echo $node
   done
   cat <<'END'
   make this
   END
   ~~~

## Second
~~~yaml
a: b
~~~
and ~nft~.
`

func TestCommandsOfBlocksAndSentences(t *testing.T) {
	got, err := commands(strings.ReplaceAll(example, "~", "`"))
	want := []Command{
		{"", "make sure", true},
		{"", "--node n", true},
		{"", "kubectl apply -f x", true},
		{"First", "kubectl get nodes |\n  wc -l", false},
		{"First", "for node in a b; do\n  echo $node\ndone", false},
		{"First", "cat <<'END'\nmake this\nEND", false},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, commands (-want +got):\n%s", err, diff)
	}
}

func TestCommandBlockMustBeMarked(t *testing.T) {
	_, err := commands("```\nmake test    # all\n```\n")
	if err == nil || !strings.Contains(err.Error(), `"make test    # all"`) {
		t.Errorf("got error %v, want one that names the command", err)
	}
}
