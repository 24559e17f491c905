package displayname_test

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/displayname"
)

func TestCheck_AcceptsUsualNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Donor sync", "Spendenübersicht 2", "寄付", "A&B <Trust>", "🎉", "Ω", "¿Qué?", "Школа №5", "Việt Nam",
		"e\u0302\u0301", "עִבְרִית", "ภาษาไทย", "हिन्दी", "東京\u3000事務所", "C++ / C#", "Café\u00a0au lait",
		strings.Repeat("é", displayname.MaxLength), "می\u200cخواهم", // Persian: RFC 5892, A.1
		"خانه\u200cای در تهران", // joined to a letter that joins on one side
		"क्\u200dष",             // Hindi, after a virama: A.2
		"क्\u200cष",             // A.1, after a virama
		"ශ්\u200dරී ලංකා",       // Sinhala
		"Zahra می\u200cخواهم!",  // in one of two words
		"👩\u200d🚀",              // UTS 51: a joined sequence
		"🏳\ufe0f\u200d🌈 Pride", "👨\u200d👩\u200d👧\u200d👦", "👩🏽\u200d⚕\ufe0f", "I ❤\ufe0f trees", "1\ufe0f\u20e3 Step",
		"🇮🇷", "👍🏿", "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f", // Scotland
	} {
		if message := displayname.Check(name, displayname.MaxLength); message != "" {
			t.Errorf("%+q: %s", name, message)
		}
	}
}

func TestCheck_RefusesInvisibleOrDeceptiveNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"", " ", "\u00a0", "\u3000", "\u2003", "\u2800", "\u0301", // nothing visible
		"\u3164", "\uffa0", "\u115f", "\u1160", "x\u3164", "\u034f", "x\ufe0f", "x\u17b4", "x\U000e0101",
		"x\U000e0041", "x\ufff0", "x\u180b", "\u200b", "Claude\u200b", "\u2060x", "x\ufeff", "x\u00ad",
		"a\u200db",                       // default ignorable
		"a\u200cb", "\u200c", "می\u200c", // nothing to join
		"\u200cمی", "می\u200c\u200cخواهم", // two
		"می\u200dخواهم",        // the other joiner
		"а\u200cб", "د\u200cد", // a letter that does not join on that side
		"क\u200dष", // no virama
		"👩\u200d", "\u200d👩", "👩\u200d\u200d🚀", "👩\u200da", "a\ufe0f", "1\ufe0f", "❤\ufe0f\ufe0f", "👍\ufe0e",
		"🏴\U000e0067\U000e0062",           // without its end
		"👍\U000e0067\U000e0062\U000e007f", // tags of another emoji
		"\U000e0067\U000e007f", "👩\u200b\u200d🚀", "safe\u202eelbadnu", "\u2066x\u2069", "\u200ex",
		"\u061cx", // bidirectional
		"a\x00", "a\nb", "a\tb", "a\u0085b", "a\u2028b", "a\x7f", "a\ue000", "a\ufffe", "a\xff", "a\ufffd",
		"e" + strings.Repeat("\u0301", 3), "Z" + strings.Repeat("\u0337\u0342", 45),
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

// Joiners are part of people's names, and not of the names of applications.
func TestCheckApplication_RefusesMixedScriptsAndJoiners(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Claude", "Claude 2", "Claude-Школа", "Школа", "東京タワーへ行こう", "한국漢字", "注音ㄅㄆ", "Slack 連携", "Αθήνα 2026",
		"Caf\u00e9", "Cafe\u0301", "O’Reilly", "サーバー", "人々", "LINE連携ツール", "Web版アプリ", "AとB", "T시스템", "Kアプリ 2", "ㄅㄆ注音App",
		"QRコード", "I ❤\ufe0f trees",
	} {
		if message := displayname.CheckApplication(name); message != "" {
			t.Errorf("%+q: %s", name, message)
		}
	}
	for _, name := range []string{
		"\u0421laude", "Cla\u03c5de", "My \u0421laude", "C\u3163aude", "C\u4e28aude", "Pay\u0440al2", "한\u30ab",
		"\u0430\u0501min\u0251", "Gロogle", // Katakana ro as an o
		"G〇〇gle", "Googㅣe", "LINEкартаツール", "한글ツール", "한글ㄅ", "ΑΒΓツール",
		"می\u200cخواهم", "क्\u200dष", "👩\u200d🚀 Rockets",
	} {
		if displayname.CheckApplication(name) == "" {
			t.Errorf("%+q is accepted", name)
		}
		if message := displayname.Check(name, displayname.MaxLength); message != "" {
			t.Errorf("Check refuses %+q: %s", name, message)
		}
	}
}
