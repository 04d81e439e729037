package choose

import (
	"bytes"
	"strings"
	"testing"
)

// world is what works on a machine; what it does not name does not work.
type world map[string]Try

func (w world) try(mode string) Try {
	t, ok := w[mode]
	if !ok {
		t = Try{Why: "lacks something"}
	}
	t.Mode = mode
	return t
}

func TestMode(t *testing.T) {
	yes, unsure := Try{Works: true}, Try{Unsure: true, Why: "no memory"}
	all := world{NFTables: yes, IPTablesNFT: yes, IPTablesLegacy: yes, IPVS: yes, Userspace: yes}
	for name, c := range map[string]struct {
		world   world
		left    []string
		backend string
		want    string
		because string // a part of the reasons
		err     string
	}{
		"everything works":              {world: all, want: NFTables, because: "any number of Services"},
		"no nf_tables":                  {world: world{IPTablesLegacy: yes, IPVS: yes, Userspace: yes}, want: IPTablesLegacy, because: "nftables does not work here: lacks something"},
		"the host uses legacy":          {world: world{IPTablesNFT: yes, IPTablesLegacy: yes}, backend: "legacy", want: IPTablesLegacy},
		"the host uses nft":             {world: world{IPTablesNFT: yes, IPTablesLegacy: yes}, backend: "nft", want: IPTablesNFT},
		"ipvs only":                     {world: world{IPVS: yes, Userspace: yes}, want: IPVS, because: "lacks port ranges"},
		"no privilege":                  {world: world{Userspace: yes}, want: Userspace},
		"nothing":                       {world: world{}, err: ErrNone.Error()},
		"ours are here":                 {world: all, left: []string{IPTablesLegacy}, want: IPTablesLegacy, because: "already in the kernel"},
		"servers drain beside":          {world: all, left: []string{IPVS, NFTables}, want: NFTables, because: "already in the kernel"},
		"ours do not work any more":     {world: world{NFTables: yes}, left: []string{IPVS}, want: NFTables, because: "ipvs does not work here"},
		"short of memory":               {world: world{NFTables: unsure, IPTablesLegacy: yes}, err: "cannot determine yet whether mode nftables works here: no memory"},
		"what comes after may be short": {world: world{NFTables: yes, IPVS: unsure}, want: NFTables},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Mode(Question{Left: c.left, Backend: c.backend, Try: c.world.try})
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Fatalf("got %v, %v, want the error %q", got, err, c.err)
				}
				return
			}
			if err != nil || got.Mode != c.want || !strings.Contains(strings.Join(got.Because, "\n"), c.because) {
				t.Errorf("got %+v, %v, want %s because of %q", got, err, c.want, c.because)
			}
		})
	}
}

// TestAsksNoMoreThanItNeeds: to try a mode loads modules of the kernel.
func TestAsksNoMoreThanItNeeds(t *testing.T) {
	var asked []string
	_, err := Mode(Question{Try: func(mode string) Try { asked = append(asked, mode); return Try{Works: true} }})
	if err != nil || len(asked) != 1 {
		t.Errorf("asked %v, %v", asked, err)
	}
}

func TestSayHow(t *testing.T) {
	for name, c := range map[string]struct {
		r    Report
		want string // in the first line; "" for none
	}{
		"no agent":             {Report{Fresh: NFTables, Recommended: Choice{Mode: NFTables}}, "--proxy-mode auto"},
		"runs what is best":    {Report{Fresh: NFTables, Running: NFTables, Recommended: Choice{Mode: NFTables}}, ""},
		"stays, could be more": {Report{Fresh: NFTables, Running: IPVS, Recommended: Choice{Mode: IPVS}}, "migrate --to nftables --dry-run"},
		"runs another":         {Report{Fresh: NFTables, Running: Userspace, Recommended: Choice{Mode: IPVS}}, "migrate --to ipvs --dry-run"},
		"nothing works":        {Report{Failed: "x"}, ""},
	} {
		c.r.SayHow()
		first := ""
		if len(c.r.Switch) > 0 {
			first = c.r.Switch[0]
		}
		if (c.want == "") != (first == "") || !strings.Contains(first, c.want) {
			t.Errorf("%s: %q, want %q", name, first, c.want)
		}
		var b bytes.Buffer
		c.r.Text(&b)
		if c.r.Failed != "" && !strings.Contains(b.String(), "Recommended: nothing: x") {
			t.Errorf("%s: %s", name, b.String())
		}
	}
}
