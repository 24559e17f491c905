package displayname_test

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/displayname"
)

func TestCheck_AcceptsUsualNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Donor sync",
		"Spendenübersicht 2",
		"寄付",
		"A&B <Trust>",
		"🎉",
		"Ω",
		"¿Qué?",
		"Школа №5",
		"Việt Nam",
		"e\u0302\u0301",
		"עִבְרִית",
		"ภาษาไทย",
		"हिन्दी",
		"東京\u3000事務所",
		"C++ / C#",
		"Café\u00a0au lait",
		strings.Repeat("é", displayname.MaxLength),
	} {
		if message := displayname.Check(name, displayname.MaxLength); message != "" {
			t.Errorf("%+q: %s", name, message)
		}
	}
}

func TestCheck_RefusesInvisibleOrDeceptiveNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"",
		" ",
		"\u00a0",
		"\u3000",
		"\u2003",
		"\u2800",
		"\u0301", // nothing visible
		"\u3164",
		"\uffa0",
		"\u115f",
		"\u1160",
		"x\u3164",
		"\u034f",
		"x\ufe0f",
		"x\u17b4",
		"x\U000e0101",
		"x\U000e0041",
		"x\ufff0",
		"x\u180b",
		"\u200b",
		"Claude\u200b",
		"\u2060x",
		"x\ufeff",
		"x\u00ad",
		"a\u200db", // default ignorable
		"safe\u202eelbadnu",
		"\u2066x\u2069",
		"\u200ex",
		"\u061cx", // bidirectional
		"a\x00",
		"a\nb",
		"a\tb",
		"a\u0085b",
		"a\u2028b",
		"a\x7f",
		"a\ue000",
		"a\ufffe",
		"a\xff",
		"a\ufffd",
		"e" + strings.Repeat("\u0301", 3),
		"Z" + strings.Repeat("\u0337\u0342", 45),
		strings.Repeat("x", displayname.MaxLength+1),
	} {
		if displayname.Check(name, displayname.MaxLength) == "" {
			t.Errorf("%+q is accepted", name)
		}
		if displayname.CheckApplication(name) == "" {
			t.Errorf("%+q is accepted for an application", name)
		}
	}
}

func TestCheckApplication_RefusesMixedScripts(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Claude",
		"Claude 2",
		"Claude-Школа",
		"Школа",
		"東京タワーへ行こう",
		"한국漢字",
		"注音ㄅㄆ",
		"Slack 連携",
		"Αθήνα 2026",
		"Caf\u00e9",
		"Cafe\u0301",
		"O’Reilly",
		"サーバー",
		"人々",
	} {
		if message := displayname.CheckApplication(name); message != "" {
			t.Errorf("%+q: %s", name, message)
		}
	}
	for _, name := range []string{
		"\u0421laude",
		"Cla\u03c5de",
		"My \u0421laude",
		"C\u3163aude",
		"C\u4e28aude",
		"Pay\u0440al2",
		"한\u30ab",
		"\u0430\u0501min\u0251",
	} {
		if displayname.CheckApplication(name) == "" {
			t.Errorf("%+q is accepted", name)
		}
		if message := displayname.Check(name, displayname.MaxLength); message != "" {
			t.Errorf("Check refuses %+q: %s", name, message)
		}
	}
}
