package spelling_test

import (
	"slices"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/almonerhq/almoner/shared/contract/spelling"
)

func TestEmail_SpellingsOfOneMailboxAreOneAddress(t *testing.T) {
	t.Parallel()
	for want, all := range map[string][]string{
		"ada@münchen.example": {
			"Ada@MÜNCHEN.example", "ada@xn--mnchen-3ya.example", "ADA@XN--MNCHEN-3YA.EXAMPLE",
			"ada@mu\u0308nchen.example", "ada@münchen。example", "\u202aada@münchen.example\u202c",
			" ada@münchen.example\u00a0",
		},
		"josé@example.org": {"jose\u0301@example.org", "JOS\u00c9@EXAMPLE.ORG", "JOSE\u0301@ｅｘａｍｐｌｅ.org"},
		"ada@例え.テスト":       {"ada@例え。テスト", "ada@xn--r8jz45g.xn--zckzah"},
		"ada@faß.example":  {"ada@xn--fa-hia.example", "ADA@FAß.example"},
		"a.b+c@foo_bar.example": {
			"A.B+C@foo_bar.EXAMPLE", "\ufeffa.b+c@foo_bar.example\u200b", "a.b+c@foo_\u00adbar.example",
		},
	} {
		for _, text := range append(all, want) {
			if got, ok := spelling.Email(text); got != want || !ok {
				t.Errorf("%+q: %+q %v, want %q", text, got, ok, want)
			}
			if !slices.Contains(spelling.Spellings(text), want) {
				t.Errorf("%+q is looked up as %+q, without %q", text, spelling.Spellings(text), want)
			}
		}
	}
}

func TestPlain_FindsLettersWithoutMarks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ÉMILE Zoë":        "emile zoe",
		"Jose\u0301":       "jose",
		"Łukasz Żółć":      "lukasz zolc",
		"Straße, ẞ":        "strasse, ss",
		"Søren Þór Æsa":    "soren thor aesa",
		"İpek ışık":        "ipek isik",
		"مُحَمَّد":         "محمد",
		"أحمد":             "احمد",
		"Ｗｉｄｅ":             "wide",
		"o'Brien-Müller 7": "o'brien-muller 7",
	} {
		if got := spelling.Plain(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestEmail_OtherMailboxesAreOtherAddresses(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{"ada@fass.example", "ada@faß.example"},
		{"ada@munchen.example", "ada@münchen.example"},
		{"kim@example.org", "\u212aim@example.org"}, // the sign of kelvin
		{"ida@example.org", "\u0130da@example.org"}, // İ
		{"ida@example.org", "\u0131da@example.org"}, // ı
		{"a;b@example.org", "a\u037eb@example.org"},
		{"ada@example.org", "\u0430da@example.org"}, // Cyrillic
		{"ada@example.org", "ad\u200ca@example.org"},
	} {
		other := spelling.Spellings(pair[1])
		for _, one := range spelling.Spellings(pair[0]) {
			if slices.Contains(other, one) {
				t.Errorf("%+q is found as %+q", pair[1], one)
			}
		}
		if spelling.Key(pair[0]) == spelling.Key(pair[1]) {
			t.Errorf("%+q and %+q have one key", pair[0], pair[1])
		}
	}
}

// No character but one of ASCII becomes ASCII in an address: it would then be the address of another mailbox.
func TestEmail_NoOtherCharacterBecomesASCII(t *testing.T) {
	t.Parallel()
	for r := rune(unicode.MaxASCII + 1); r <= unicode.MaxRune; r++ {
		if !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S) {
			continue
		}
		for _, one := range append(spelling.Spellings("a"+string(r)+"@x.org"), spelling.Key("a"+string(r)+"@x.org")) {
			if local, _, _ := strings.Cut(one, "@"); isASCII(local) {
				t.Errorf("%U: %+q", r, one)
			}
		}
	}
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII })
}

func TestEmail_RefusesWhatIsNoBareAddress(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "ada", "@example.org", "ada@", "a@b@example.org", "Ada <ada@example.org>", "<ada@example.org>",
		`"a b"@example.org`, "a b@example.org", "ada@exam ple.org", "ada@example..org", "ada@.example.org",
		"ada@example.org.", "ada@[127.0.0.1]", "ada(x)@example.org", "ada@example.org,eve@example.org",
		"ada@xn--zzzz.example", "ada@-ü-.example", "a\x00@example.org", "a\n@example.org", "a\xff@example.org",
		"ada@" + strings.Repeat("ü", 64) + ".example", strings.Repeat("a", 250) + "@example.org",
		strings.Repeat("a", 200) + "@" + strings.Repeat("ü", 40) + ".example",
	} {
		if got, ok := spelling.Email(text); ok {
			t.Errorf("%+q is the address %+q", text, got)
		}
		spelling.Spellings(text) // accepts any text
	}
}

// A local part has no character that Unicode lets programs ignore: two addresses would look the same.
func TestEmail_RefusesInvisibleCharactersInLocalPart(t *testing.T) {
	t.Parallel()
	for r := range rune(unicode.MaxRune) {
		if !unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
			continue
		}
		got, ok := spelling.Email("ad" + string(r) + "a@example.org")
		if pasted := spelling.Pasted(string(r)) == ""; ok != pasted || ok && got != "ada@example.org" {
			t.Errorf("%U: %+q %v", r, got, ok)
		}
	}
	for _, text := range []string{
		"می\u200cخواهم@example.org", "❤\ufe0f@example.org", "क्\u200dष@example.org", "\u2800@example.org",
	} {
		if got, ok := spelling.Email(text); ok {
			t.Errorf("%+q is the address %+q", text, got)
		}
		if !slices.Contains(spelling.Spellings(text), text) {
			t.Errorf("an earlier release's account is not found: %+q", spelling.Spellings(text))
		}
	}
}

// A domain that could be taken for another one is shown as it is on the wire.
func TestEmail_ShowsDeceptiveDomainsOnWire(t *testing.T) {
	t.Parallel()
	for typed, deceptive := range map[string]bool{
		"ada@\u0430pple.example":      true, // Cyrillic a
		"ada@www.goog\u04cfe.example": true,
		"ada@क्\u200dष.example":       true,
		"ada@екатеринбург24.com":      false,
		"ada@lineweb連携.example":       false,
		"ada@münchen.example":         false,
		"ada@παράδειγμα.ελ":           false,
	} {
		wire := spelling.OnWire(typed)
		want := typed
		if deceptive {
			want = wire
		}
		for _, text := range []string{typed, wire} {
			if got, ok := spelling.Email(text); got != want || !ok {
				t.Errorf("%+q is shown as %+q %v, want %+q", text, got, ok, want)
			}
			// Earlier releases stored an address as it was typed.
			if all := spelling.Spellings(text); !slices.Contains(all, typed) || !slices.Contains(all, wire) {
				t.Errorf("%+q is looked up as %+q", text, all)
			}
		}
	}
}

func TestClaimed_RefusesAddressesWithInvisibleCharacters(t *testing.T) {
	t.Parallel()
	if got, ok := spelling.Claimed("Jose\u0301@xn--mnchen-3ya.example"); got != "josé@münchen.example" || !ok {
		t.Errorf("%q %v", got, ok)
	}
	for _, text := range []string{"ad\u200ba@example.org", "ada@exa\u00admple.org", " ada@example.org", ""} {
		if got, ok := spelling.Claimed(text); ok {
			t.Errorf("%+q is the address %q", text, got)
		}
	}
}

func TestOnWire_HasDomainInASCII(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ada@münchen.example": "ada@xn--mnchen-3ya.example",
		"ada@example.org":     "ada@example.org",
		"josé@example.org":    "josé@example.org",
		"nonsense":            "nonsense",
	} {
		if got := spelling.OnWire(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestPassword_FormsOfOneTextAreOnePassword(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{"p\u00e4ssw\u00f6rter", "pa\u0308sswo\u0308rter"},
		{"\uff50\uff41\uff53\uff53 1", "pass\u00a01"},
		{"\ud55c\uae00", norm.NFD.String("\ud55c\uae00")},
	} {
		if spelling.Password(pair[0]) != spelling.Password(pair[1]) {
			t.Errorf("%+q and %+q are two passwords", pair[0], pair[1])
		}
	}
	if spelling.Password("Password") == spelling.Password("password") {
		t.Error("the case of a password does not count")
	}
}

func TestCode_DigitsAndDashesOfAnyScript(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"123 456":               "123456",
		"１２３４５６":                "123456",
		"١٢٣٤٥٦":                "123456",
		"१२३-४५६":               "123456",
		"۱۲۳\u200f۴۵۶":          "123456",
		"\u202a123\u2011456":    "123456",
		"abcd–efgh—2345‑wxyz":   "abcdefgh2345wxyz",
		"ＡＢＣＤ－ＥＦＧＨ":             "abcdefgh",
		"ABCD−efghー2345\u00a0":  "abcdefgh2345",
		"abcd\u00adefgh\ufeff ": "abcdefgh",
		"\U0001d7ce\U0001d7d9":  "01",
		"":                      "",
	} {
		if got := spelling.Code(text); got != want {
			t.Errorf("%+q: %q, want %q", text, got, want)
		}
	}
}

// Each decimal digit has the value that Unicode's compatibility mappings and the order of the digits give it.
func TestDigits_EachScriptCountsFromZero(t *testing.T) {
	t.Parallel()
	next := rune(0)
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !unicode.Is(unicode.Nd, r) {
			if next != 0 && next != '9'+1 {
				t.Errorf("the digits before %U end with %q", r, next-1)
			}
			next = 0
			continue
		}
		if next == 0 || next == '9'+1 {
			next = '0'
		}
		if got := spelling.Digits(string(r)); got != string(next) {
			t.Errorf("%U: %q, want %q", r, got, next)
		}
		next++
	}
}

func TestPhone_PastedNumbersAreOrdinary(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"\u202a+44\u00a020\u20117946\u20130000\u202c": "+44 20-7946-0000",
		"（０２０）７９４６ ００００":                              "(020)7946 0000",
		"\u2066+49 (0)30\u2069":                       "+49 (0)30",
		"＋８１ー３ー１２３４":                                  "+81-3-1234",
		"+٤٤ ٢٠":                                      "+44 20",
		"020 7946\u200c0000":                          "020 79460000",
		"\ufeff020\u202f7946\u2009ext.\u00a012 ":      "020 7946 ext. 12",
	} {
		if got := spelling.Phone(text); got != want {
			t.Errorf("%+q: %q, want %q", text, got, want)
		}
	}
}

func FuzzEmail(f *testing.F) {
	f.Add("Ada@MÜNCHEN.example")
	f.Add("jose\u0301@xn--mnchen-3ya.example")
	f.Add("\u202a\u0130@x.org")
	f.Fuzz(func(t *testing.T, text string) {
		email, ok := spelling.Email(text)
		if !ok {
			return
		}
		if again, still := spelling.Email(email); again != email || !still {
			t.Errorf("%+q: %+q, then %+q %v", text, email, again, still)
		}
		if wire, still := spelling.Email(spelling.OnWire(email)); wire != email || !still {
			t.Errorf("%+q: on the wire it is %+q %v", email, wire, still)
		}
	})
}
