//! Tokens to statements, with every variable replaced by its value.

use std::collections::BTreeMap;

use super::lex::Token;
use super::{Position, WmlError};

/// `name` or `name=value`.
#[derive(Debug, Clone)]
pub(super) struct Attribute {
    pub(super) name: String,
    pub(super) at: Position,
    pub(super) value: Option<Value>,
}

#[derive(Debug, Clone)]
pub(super) struct Value {
    pub(super) text: String,
    pub(super) at: Position,
}

/// Something with attributes: a fileset, process, thread or flowop. `kind` is the word that tells.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) kind: String,
    pub(super) at: Position,
    pub(super) attributes: Vec<Attribute>,
    pub(super) children: Vec<Item>,
}

/// A parsed file: what it defines, and whether it ends with the first thread that is done.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) items: Vec<Item>,
    pub(super) quit_first_done: bool,
    /// Of the last `run`.
    pub(super) seconds: Option<Value>,
}

struct Parser<'a> {
    tokens: std::iter::Peekable<std::vec::IntoIter<(Token, Position)>>,
    end: Position,
    given: &'a BTreeMap<String, String>,
    variables: BTreeMap<String, String>,
}

const STATEMENTS: &str = "`set`, `define`, `echo`, `create` or `run`";

pub(super) fn parse(
    tokens: Vec<(Token, Position)>,
    given: &BTreeMap<String, String>,
) -> Result<File, WmlError> {
    let end = tokens
        .last()
        .map_or(Position { line: 1, column: 1 }, |(_, at)| *at);
    let mut parser = Parser {
        tokens: tokens.into_iter().peekable(),
        end,
        given,
        variables: given.clone(),
    };
    let mut file = File::default();
    loop {
        let (token, at) = parser.next();
        match token {
            Token::End => return Ok(file),
            Token::Word(word) => match word.as_str() {
                "set" => parser.set(&mut file)?,
                "define" => file.items.push(parser.define()?),
                "echo" => drop(parser.value("a text to show")?),
                "create" => {
                    parser.keyword(&["files", "fileset", "filesets"])?;
                }
                "run" => file.seconds = parser.run(),
                _ => {
                    let known = ["set", "define", "echo", "create", "run"];
                    let expected = STATEMENTS.to_owned();
                    return Err(WmlError::unknown(at, expected, &word, &known));
                }
            },
            other => return Err(WmlError::new(at, STATEMENTS, other.describe())),
        }
    }
}

impl Parser<'_> {
    fn next(&mut self) -> (Token, Position) {
        self.tokens.next().unwrap_or((Token::End, self.end))
    }

    fn peek(&mut self) -> &Token {
        self.tokens.peek().map_or(&Token::End, |(token, _)| token)
    }

    fn word(&mut self, expected: &str) -> Result<(String, Position), WmlError> {
        match self.next() {
            (Token::Word(word), at) => Ok((word, at)),
            (other, at) => Err(WmlError::new(at, expected, other.describe())),
        }
    }

    fn keyword(&mut self, accepted: &[&str]) -> Result<(String, Position), WmlError> {
        let expected = list(accepted);
        let (word, at) = self.word(&expected)?;
        if accepted.contains(&word.as_str()) {
            return Ok((word, at));
        }
        Err(WmlError::unknown(at, expected, &word, accepted))
    }

    fn token(&mut self, wanted: &Token) -> Result<(), WmlError> {
        let (token, at) = self.next();
        if token == *wanted {
            return Ok(());
        }
        Err(WmlError::new(at, wanted.describe(), token.describe()))
    }

    fn value(&mut self, expected: &str) -> Result<Value, WmlError> {
        let (token, at) = self.next();
        let text = match token {
            Token::Word(text) | Token::Text(text) => text,
            Token::Variable(name) => match self.variables.get(&name) {
                Some(value) => value.clone(),
                None => {
                    let expected = format!("a variable that was `set` before (`set ${name}=...`)");
                    return Err(WmlError::new(at, expected, format!("`${name}`")));
                }
            },
            other => return Err(WmlError::new(at, expected, other.describe())),
        };
        Ok(Value { text, at })
    }

    fn set(&mut self, file: &mut File) -> Result<(), WmlError> {
        match self.next() {
            (Token::Variable(name), _) => {
                self.token(&Token::Equals)?;
                let value = self.value("a value")?;
                if !self.given.contains_key(&name) {
                    self.variables.insert(name, value.text);
                }
                Ok(())
            }
            (Token::Word(word), _) if word == "mode" => {
                self.keyword(&["quit"])?;
                let (mode, _) = self.keyword(&["alldone", "firstdone", "timeout"])?;
                file.quit_first_done = mode == "firstdone";
                Ok(())
            }
            (other, at) => Err(WmlError::new(
                at,
                "`$variable` or `mode quit ...`",
                other.describe(),
            )),
        }
    }

    fn run(&mut self) -> Option<Value> {
        let Token::Word(word) = self.peek() else {
            return None;
        };
        if !word.chars().all(|c| c.is_ascii_digit()) {
            return None;
        }
        let text = word.clone();
        let (_, at) = self.next();
        Some(Value { text, at })
    }

    fn define(&mut self) -> Result<Item, WmlError> {
        let (kind, at) = self.keyword(&["fileset", "file", "process"])?;
        let attributes = self.attributes()?;
        let mut children = Vec::new();
        if kind == "process" {
            self.token(&Token::Open)?;
            while *self.peek() != Token::Close {
                children.push(self.thread()?);
            }
            self.next();
        }
        Ok(Item {
            kind,
            at,
            attributes,
            children,
        })
    }

    fn thread(&mut self) -> Result<Item, WmlError> {
        let (kind, at) = match self.next() {
            (Token::Word(word), at) if word == "thread" => (word, at),
            (other, at) => return Err(WmlError::new(at, "`thread` or `}`", other.describe())),
        };
        let attributes = self.attributes()?;
        self.token(&Token::Open)?;
        let mut children = Vec::new();
        loop {
            match self.next() {
                (Token::Close, _) => break,
                (Token::Word(word), _) if word == "flowop" => {
                    let (kind, at) = self.word("the kind of the flowop")?;
                    let attributes = self.attributes()?;
                    children.push(Item {
                        kind,
                        at,
                        attributes,
                        children: Vec::new(),
                    });
                }
                (other, at) => {
                    return Err(WmlError::new(at, "`flowop` or `}`", other.describe()));
                }
            }
        }
        Ok(Item {
            kind,
            at,
            attributes,
            children,
        })
    }

    fn attributes(&mut self) -> Result<Vec<Attribute>, WmlError> {
        let mut attributes = Vec::new();
        loop {
            let (name, at) = self.word("an attribute (`name=value`)")?;
            let mut value = None;
            if *self.peek() == Token::Equals {
                self.next();
                value = Some(self.value("a value after `=`")?);
            }
            attributes.push(Attribute { name, at, value });
            if *self.peek() != Token::Comma {
                return Ok(attributes);
            }
            self.next();
        }
    }
}

/// "`a`, `b` or `c`".
pub(super) fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|w| format!("`{w}`")).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, before)) => format!("{} or {last}", before.join(", ")),
    }
}
