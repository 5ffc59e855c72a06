//! Text to tokens.

use super::{Position, WmlError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A name, number or path.
    Word(String),
    /// `$name`, without the sign.
    Variable(String),
    /// A text in double quotes, without them.
    Text(String),
    Equals,
    Comma,
    Open,
    Close,
    End,
}

impl Token {
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Word(word) => format!("`{word}`"),
            Self::Variable(name) => format!("`${name}`"),
            Self::Text(text) => format!("\"{text}\""),
            Self::Equals => "`=`".into(),
            Self::Comma => "`,`".into(),
            Self::Open => "`{`".into(),
            Self::Close => "`}`".into(),
            Self::End => "the end of the file".into(),
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':' | '+' | '%')
}

struct Scanner<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    at: Position,
}

impl Scanner<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        if c == '\n' {
            self.at = Position {
                line: self.at.line + 1,
                column: 1,
            };
        } else {
            self.at.column += 1;
        }
        Some(c)
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> String {
        let mut taken = String::new();
        while let Some(c) = self.rest.next_if(|c| accept(*c)) {
            self.at.column += 1;
            taken.push(c);
        }
        taken
    }

    fn token(&mut self) -> Result<Token, WmlError> {
        let start = self.at;
        let Some(&c) = self.rest.peek() else {
            return Ok(Token::End);
        };
        if is_word(c) {
            return Ok(Token::Word(self.take_while(is_word)));
        }
        self.next();
        Ok(match c {
            '=' => Token::Equals,
            ',' => Token::Comma,
            '{' => Token::Open,
            '}' => Token::Close,
            '$' => {
                let name = self.take_while(|c| c.is_alphanumeric() || c == '_');
                if name.is_empty() {
                    return Err(WmlError::new(
                        self.at,
                        "a variable's name after `$`",
                        "none",
                    ));
                }
                Token::Variable(name)
            }
            '"' => {
                let text = self.take_while(|c| c != '"' && c != '\n');
                if self.next() != Some('"') {
                    return Err(WmlError::new(
                        start,
                        "a text that ends with `\"`",
                        "no end quote on its line",
                    ));
                }
                Token::Text(text)
            }
            '(' | ')' | ';' => {
                return Err(WmlError::new(
                    start,
                    "a number, word, text or `$variable` (random variables are not part of the subset)",
                    format!("`{c}`"),
                ));
            }
            other => {
                return Err(WmlError::new(
                    start,
                    "a word, text, `$variable`, `=`, `,`, `{` or `}`",
                    format!("`{}`", other.escape_debug()),
                ));
            }
        })
    }
}

pub(super) fn lex(text: &str) -> Result<Vec<(Token, Position)>, WmlError> {
    let mut scanner = Scanner {
        rest: text.chars().peekable(),
        at: Position { line: 1, column: 1 },
    };
    let mut tokens = Vec::new();
    loop {
        while scanner.rest.peek().is_some_and(|c| c.is_whitespace()) {
            scanner.next();
        }
        if scanner.rest.peek() == Some(&'#') {
            scanner.take_while(|c| c != '\n');
            continue;
        }
        let at = scanner.at;
        let token = scanner.token()?;
        let end = token == Token::End;
        tokens.push((token, at));
        if end {
            return Ok(tokens);
        }
    }
}
